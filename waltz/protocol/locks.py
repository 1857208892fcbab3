"""Lock ids and the 32-bit hash that represents them on the wire (spec/wire.md section 5). Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from waltz.protocol.checksums import as_signed


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of an application: a name (often a table) and a 64-bit id (often a key)."""

    name: str
    id: int

    def __post_init__(self) -> None:
        """Raise TypeError for a wrong type.

        The check is here, not in `hash`, so that the traceback shows where the lock was made.
        """
        if not isinstance(self.name, str):
            raise TypeError(
                f"the name of Lock({self.name!r}, {self.id!r}) is {self.name!r}: it must be a str"
            )
        if not isinstance(self.id, int) or isinstance(self.id, bool):
            raise TypeError(
                f"the id of Lock({self.name!r}, {self.id!r}) is {self.id!r}: it must be an int; "
                "put a key of another type into the name"
            )

    def hash(self) -> int:
        """Return the lock's form on the wire, a signed 32-bit integer.

        Clients of Waltz 0.13.2, in Java, compute the same number. Otherwise an append of one kind
        of client would not be refused after the other kind has taken the same lock.
        """
        return as_signed(_java_string_hash(self.name) ^ _java_long_hash(self.id))


def lock_hashes(locks: tuple[Lock, ...] | list[Lock]) -> tuple[int, ...]:
    """Return the hash of each of ``locks``."""
    return tuple(lock.hash() for lock in locks)


def _java_string_hash(text: str) -> int:
    """Return what ``String.hashCode`` of Java returns, as an unsigned 32-bit integer."""
    # Java hashes the UTF-16 code units, of which some characters have two.
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for code_unit in struct.unpack(f">{len(raw) // 2}H", raw):
        value = (31 * value + code_unit) & 0xFFFF_FFFF
    return value


def _java_long_hash(number: int) -> int:
    """Return what ``Long.hashCode`` of Java returns, as an unsigned 32-bit integer."""
    bits = number & 0xFFFF_FFFF_FFFF_FFFF
    return (bits ^ (bits >> 32)) & 0xFFFF_FFFF
