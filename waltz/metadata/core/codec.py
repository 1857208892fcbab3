"""Write and read the fields of znode data: big-endian numbers, text, counts. Pure.

The reader checks a count of entries against the remaining bytes before it allocates memory, so that
damaged data cannot exhaust the memory. Source: spec/zookeeper.md section 2.
"""

from __future__ import annotations

import struct
from typing import Final

from waltz.metadata.core.modified_utf8 import MalformedText, decode_text, encode_text

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT16: Final = struct.Struct(">H")


class MalformedMetadata(ValueError):
    """The data of a znode does not have the expected format.

    ``kind`` names the format. ``reason`` says what is wrong.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"malformed {kind}: {reason}")
        self.kind = kind
        self.reason = reason


def int32(value: int) -> bytes:
    """Return ``value`` as a signed 32-bit number."""
    return _INT32.pack(value)


def int64(value: int) -> bytes:
    """Return ``value`` as a signed 64-bit number."""
    return _INT64.pack(value)


def text(value: str) -> bytes:
    """Return ``value`` in modified UTF-8, after its length in bytes as a 16-bit number.

    Raises MalformedText if ``value`` is too long.
    """
    encoded = encode_text(value)
    return _UINT16.pack(len(encoded)) + encoded


class FieldReader:
    """Reads one field after the other from a znode's data.

    ``kind`` names the format for errors. A method raises MalformedMetadata if the bytes are wrong.
    """

    __slots__ = ("_kind", "_position", "_raw")

    def __init__(self, kind: str, raw: bytes) -> None:
        self._kind = kind
        self._raw = raw
        self._position = 0

    def fail(self, reason: str) -> MalformedMetadata:
        """Return the error for data that are wrong for ``reason``; the caller raises it."""
        return MalformedMetadata(self._kind, reason)

    def version(self, expected: int) -> None:
        """Read the version byte, which must be ``expected``."""
        version = self._take(1)[0]
        if version != expected:
            raise self.fail(f"version {version}; only version {expected} is understood")

    def int32(self) -> int:
        """Read a signed 32-bit number."""
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def int64(self) -> int:
        """Read a signed 64-bit number."""
        value: int = _INT64.unpack(self._take(8))[0]
        return value

    def raw(self, length: int) -> bytes:
        """Read ``length`` bytes as they are."""
        return self._take(length)

    def text(self) -> str:
        """Read a text with its 16-bit length."""
        (length,) = _UINT16.unpack(self._take(2))
        try:
            return decode_text(self._take(length))
        except MalformedText as problem:
            raise self.fail(str(problem)) from problem

    def count(self, entry_bytes: int) -> int:
        """Read the number of entries that follow, each of at least ``entry_bytes`` bytes."""
        count = self.int32()
        left = len(self._raw) - self._position
        if not 0 <= count * entry_bytes <= left:
            raise self.fail(f"{count} entries of at least {entry_bytes} bytes in {left} bytes")
        return count

    def finish(self) -> None:
        """Raise MalformedMetadata if bytes remain."""
        left = len(self._raw) - self._position
        if left:
            raise self.fail(f"{left} bytes too many")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._raw):
            missing = end - len(self._raw)
            raise self.fail(f"{missing} bytes missing at the end of {len(self._raw)}")
        taken = self._raw[self._position : end]
        self._position = end
        return taken
