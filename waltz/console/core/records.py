"""Format the data of records for a page, in bounded size, and parse what a user searches for. Pure.

Data are whatever an application appended, so they are treated as hostile: characters that a page
would not show, or that change the direction of text, are replaced by their escapes.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from waltz.protocol.records import Record, ReqId

MAX_SHOWN_BYTES = 4096
"""The most bytes that are shown as text, and the most characters that are shown as JSON.

As hex, at most `_MAX_HEX_BYTES` are shown. A notice says that the rest is left out.
"""
MAX_JSON_BYTES = 64 << 10
"""The largest data that are parsed as JSON."""

_JSON_LINE = 120
"""The most characters of JSON that is shown on one line. Longer JSON is indented."""

_NUMBER = re.compile(r"-?\d+", re.ASCII)
_HEX_COLUMNS = 16
"""How many bytes are in each line of hex."""
_MAX_HEX_BYTES = MAX_SHOWN_BYTES // 4
"""The most bytes that are shown as hex: each of them takes about 5 characters."""
_SEARCHED_CHARACTERS = 200
"""How many characters of a text are searched for a request id; the rest is ignored."""
_ID_PARTS = 4
"""How many numbers a request id has."""
_INT_RANGE = range(-(1 << 31), 1 << 31)
"""The range of each of these numbers, which have 32 bits."""


class DataFormat(StrEnum):
    """How data are shown. AUTO is JSON or text if the data have this format, otherwise hex."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class ShownData:
    """Data as text. ``format`` is the format in use, ``size`` the size of the data in bytes.

    ``truncated`` says whether ``text`` has only the beginning of the data. ``notice`` says what is
    left out, or why another format than the requested one is in use.
    """

    format: DataFormat
    text: str
    size: int
    truncated: bool
    notice: str | None


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One transaction of a page."""

    id: int
    client_id: int
    generation: int
    seq: int
    header: int
    data: ShownData


def show_record(record: Record, data_format: DataFormat) -> ShownRecord:
    """Return a record as the page shows it."""
    req_id = record.req_id
    return ShownRecord(
        record.transaction_id,
        req_id.client_id,
        req_id.generation,
        req_id.seq,
        record.header,
        show_data(record.data, data_format),
    )


def show_data(data: bytes, data_format: DataFormat) -> ShownData:
    """Return data in a format. If the data do not have the format, return hex with a notice."""
    match data_format:
        case DataFormat.HEX:
            return _hex(data, notice=None)
        case DataFormat.JSON:
            return _json(data) or _hex(data, f"not JSON{_too_large(data)}: shown as hex")
        case DataFormat.TEXT:
            return _text(data) or _hex(data, "not UTF-8 text: shown as hex")
        case DataFormat.AUTO:
            # A number and a text in quotes are JSON, too, but they are shown as text.
            json_shown = _json(data) if data.startswith((b"{", b"[")) else None
            return json_shown or _printable_text(data) or _hex(data, None)


def parse_request_id(text: str) -> ReqId:
    """Return the request id in a text: client id, generation, partition and sequence number.

    Any text with four numbers in this order is accepted, such as ``12:3:0:17`` or the ``ReqId`` of
    an error message. Raises ValueError.
    """
    numbers = [int(number) for number in _NUMBER.findall(text[:_SEARCHED_CHARACTERS])]
    if len(numbers) != _ID_PARTS:
        raise ValueError(
            "a request id has four numbers: client id, generation, partition and sequence number, "
            "such as 12:3:0:17"
        )
    if any(number not in _INT_RANGE for number in numbers):
        raise ValueError("a number of the request id exceeds 32 bits")
    return ReqId(*numbers)


def visible(text: str) -> str:
    """Return ``text`` with a replacement for each character that a page does not show as itself.

    Line feeds and tabs stay. A line end of two characters becomes a line feed. Special spaces
    become blanks. All other characters that a page does not show become escapes.
    """
    return "".join(_visible(character) for character in text.replace("\r\n", "\n"))


def _visible(character: str) -> str:
    """Return what `visible` shows for a character."""
    if character in "\n\t" or character.isprintable():
        return character
    if unicodedata.category(character) == "Zs":
        return " "  # A special space, such as a no-break space.
    # The remaining characters are mainly of the categories Cc and Cf: control characters, and
    # characters that change the direction of text.
    number = ord(character)
    if number < 1 << 8:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def _text(data: bytes) -> ShownData | None:
    """Return data as text, None if they are not UTF-8."""
    text = _decoded(data)
    if text is None:
        return None
    return _shown(DataFormat.TEXT, visible(text), data, min(len(data), MAX_SHOWN_BYTES))


def _printable_text(data: bytes) -> ShownData | None:
    """Return data as text if they are UTF-8 with few special characters, otherwise None.

    Few means that `visible` replaces at most a tenth of the shown characters.
    """
    text = _decoded(data)
    if text is None:
        return None
    text = text.replace("\r\n", "\n")
    num_replaced = sum(visible(character) != character for character in text)
    return None if num_replaced * 10 > len(text) else _text(data)


def _decoded(data: bytes) -> str | None:
    """Return the first `MAX_SHOWN_BYTES` of data as text, None if they are not UTF-8."""
    shown = data[:MAX_SHOWN_BYTES]
    # If the cut has divided a character, the decoder keeps the part, and returns the text before.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(shown, final=len(shown) == len(data))
    except UnicodeDecodeError:
        return None


def _json(data: bytes) -> ShownData | None:
    """Return data as JSON, None if they are not JSON or too large to parse."""
    if len(data) > MAX_JSON_BYTES:
        return None
    try:
        value = json.loads(data)
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > _JSON_LINE:
            text = json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    shown = visible(text[:MAX_SHOWN_BYTES])
    truncated = len(text) > MAX_SHOWN_BYTES
    notice = f"the first {MAX_SHOWN_BYTES} characters of {len(text)}" if truncated else None
    return ShownData(DataFormat.JSON, shown, len(data), truncated, notice)


def _hex(data: bytes, notice: str | None) -> ShownData:
    """Return data as lines of an offset, 16 bytes, and the same bytes as ASCII."""
    part = data[:_MAX_HEX_BYTES]
    lines = []
    for offset in range(0, len(part), _HEX_COLUMNS):
        row = part[offset : offset + _HEX_COLUMNS]
        # The printable characters of ASCII are those from the blank to the tilde.
        ascii_text = "".join(chr(byte) if ord(" ") <= byte <= ord("~") else "." for byte in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<{3 * _HEX_COLUMNS - 1}}  {ascii_text}")
    shown = _shown(DataFormat.HEX, "\n".join(lines), data, len(part))
    notices = "; ".join(filter(None, (notice, shown.notice)))
    return ShownData(shown.format, shown.text, shown.size, shown.truncated, notices or None)


def _shown(format_: DataFormat, text: str, data: bytes, shown_bytes: int) -> ShownData:
    """Return ``data`` as ``text``, which has the first ``shown_bytes`` bytes of ``data``."""
    truncated = shown_bytes < len(data)
    notice = f"the first {shown_bytes} bytes of {len(data)}" if truncated else None
    return ShownData(format_, text, len(data), truncated, notice)


def _too_large(data: bytes) -> str:
    """Return text for a notice if data may be JSON but are too large to parse, otherwise ``""``."""
    return f", or larger than {MAX_JSON_BYTES} bytes" if len(data) > MAX_JSON_BYTES else ""
