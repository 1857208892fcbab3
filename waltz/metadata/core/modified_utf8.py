"""Java's modified UTF-8, the encoding of text in znodes and in storages' control files. Pure.

It differs from UTF-8 in two ways. U+0000 is encoded as ``C0 80``. A character above U+FFFF is
encoded as its two UTF-16 surrogates, in three bytes each. Source: spec/zookeeper.md section 2.
"""

from __future__ import annotations

from array import array
from sys import byteorder

MAX_ENCODED_BYTES = 0xFFFF
"""The longest encoded text: its length is stored as an unsigned 16-bit number of bytes."""


class MalformedText(ValueError):
    """The bytes are not modified UTF-8, or the text does not fit into a length field."""


def encode_text(text: str) -> bytes:
    """Return ``text`` as modified UTF-8, without a length before it.

    Raises MalformedText if the result is longer than `MAX_ENCODED_BYTES`.
    """
    if text.isascii() and "\0" not in text:
        encoded = text.encode("ascii")
    else:
        encoded = b"".join(_encode_unit(unit) for unit in _utf16_units(text))
    if len(encoded) > MAX_ENCODED_BYTES:
        raise MalformedText(
            f"text of {len(encoded)} encoded bytes; at most {MAX_ENCODED_BYTES} can be stored"
        )
    return encoded


def decode_text(raw: bytes) -> str:
    """Return the text of the modified UTF-8 in ``raw``. A surrogate without its pair is kept.

    Raises MalformedText if a byte cannot start or continue a character.
    """
    if raw.isascii():
        return raw.decode("ascii")
    units = array("H")
    position = 0
    while position < len(raw):
        unit, length = _decode_unit(raw, position)
        units.append(unit)
        position += length
    # The numbers of an array have the byte order of the machine.
    if byteorder == "little":
        units.byteswap()
    return units.tobytes().decode("utf-16-be", "surrogatepass")


def _utf16_units(text: str) -> array[int]:
    """Return the UTF-16 code units of ``text`` as numbers."""
    units = array("H", text.encode("utf-16-be", "surrogatepass"))
    # The numbers of an array have the byte order of the machine.
    if byteorder == "little":
        units.byteswap()
    return units


def _encode_unit(unit: int) -> bytes:
    """Return the one to three bytes of a UTF-16 unit; U+0000 has two bytes."""
    if 0 < unit < 0x80:
        return bytes((unit,))
    if unit < 0x800:
        return bytes((0xC0 | (unit >> 6), 0x80 | (unit & 0x3F)))
    return bytes((0xE0 | (unit >> 12), 0x80 | ((unit >> 6) & 0x3F), 0x80 | (unit & 0x3F)))


def _decode_unit(raw: bytes, position: int) -> tuple[int, int]:
    """Return the UTF-16 unit that begins at ``position``, and the number of its bytes."""
    first = raw[position]
    if first < 0x80:
        return first, 1
    if first & 0xE0 == 0xC0:
        return ((first & 0x1F) << 6) | _continuation(raw, position + 1), 2
    if first & 0xF0 == 0xE0:
        middle, last = _continuation(raw, position + 1), _continuation(raw, position + 2)
        return ((first & 0x0F) << 12) | (middle << 6) | last, 3
    raise MalformedText(f"byte {first:#04x} at {position} cannot start a character")


def _continuation(raw: bytes, position: int) -> int:
    """Return the six bits that the continuation byte at ``position`` adds to a character."""
    if position >= len(raw):
        raise MalformedText("text ends inside a character")
    if raw[position] & 0xC0 != 0x80:
        raise MalformedText(f"byte {raw[position]:#04x} at {position} cannot continue a character")
    return raw[position] & 0x3F
