"""Define the interface of a fuzz target: valid inputs, their mutations, and the check."""

from __future__ import annotations

import struct
from random import Random
from typing import Protocol

_LENGTH = struct.Struct(">i")
_ABSENT = -1


class Broken(AssertionError):
    """A property does not hold for an input; the text says which."""


class Target(Protocol):
    """One parser, or one family of them. An input is always bytes, so that it can be kept."""

    @property
    def name(self) -> str:
        """The name of the target on the command line and in findings."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules whose branches the inputs should reach."""

    def make(self, random: Random) -> bytes:
        """Return a valid input."""

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Return a changed input; ``other`` is another one, to take parts from."""

    def check(self, data: bytes) -> bool:
        """Parse ``data``; return whether it was accepted (or refused by name).

        Any exception is a finding; `Broken` names the property that does not hold.
        """


def hold(condition: object, promise: str) -> None:
    """Raise `Broken` unless ``condition`` is true."""
    if not condition:
        raise Broken(promise)


def pack(parts: list[tuple[str, bytes | None]]) -> bytes:
    """Return named parts as one input; None stands for a part that is not there."""
    out = []
    for name, content in parts:
        raw = name.encode("utf-8", "surrogatepass")
        length = _ABSENT if content is None else len(content)
        out += [_LENGTH.pack(len(raw)), raw, _LENGTH.pack(length), content or b""]
    return b"".join(out)


def unpack(data: bytes) -> list[tuple[str, bytes | None]]:
    """Return the parts of an input made by `pack`."""
    parts: list[tuple[str, bytes | None]] = []
    position = 0

    def take(length: int) -> bytes:
        nonlocal position
        position += length
        return data[position - length : position]

    while position < len(data):
        name = take(*_LENGTH.unpack(take(4))).decode("utf-8", "surrogatepass")
        (length,) = _LENGTH.unpack(take(4))
        parts.append((name, None if length == _ABSENT else take(length)))
    return parts
