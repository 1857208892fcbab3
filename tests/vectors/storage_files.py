"""Split and join the files of a storage node without the storage's own code.

Source: spec/disk.md sections 2 to 4. A *piece* is one field of a file: offset, name, value and hex.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.vectors.generate.control_file import ENTRY_BYTES, HEADER_BYTES, control_fields

Piece = dict[str, Any]
Files = dict[str, bytes]

CONTROL = "waltz-storage.ctl"
_FORMS = {"int": ">i", "long": ">q"}
_ENTRY_FIELDS = (
    ("session id", "long"),
    ("low-water mark", "long"),
    ("local low-water mark", "long"),
    ("flags", "int"),
    ("update number", "int"),
    ("CRC-32", "int"),
)
_RECORD_FIELDS = (
    ("transaction id", "long"),
    ("client id", "int"),
    ("generation", "int"),
    ("partition", "int"),
    ("sequence number", "int"),
    ("header", "int"),
    ("data length", "int"),
    ("data checksum", "int"),
)
RECORD_HEAD_BYTES = 36


def pieces_of(name: str, raw: bytes) -> list[Piece]:
    """Return the fields of a file; together they are the file."""
    if name == CONTROL:
        found = list(_control(raw))
    elif name.endswith(".seg"):
        found = [*_header(raw), *_records(raw)]
    else:
        offsets = range(HEADER_BYTES, len(raw), 8)
        found = [*_header(raw), *(_number(raw, at, "offset of a record", "long") for at in offsets)]
    assert b"".join(bytes.fromhex(piece["hex"]) for piece in found) == raw
    return found


def raw_of(pieces: list[Piece]) -> bytes:
    """Return the file that consists of these pieces."""
    raw = bytearray()
    for piece in pieces:
        assert piece["offset"] == len(raw), piece
        raw += bytes.fromhex(piece["hex"])
    return bytes(raw)


def _number(raw: bytes, offset: int, name: str, form: str) -> Piece:
    (value,) = struct.unpack_from(_FORMS[form], raw, offset)
    return _piece(raw, offset, struct.calcsize(_FORMS[form]), name, value)


def _piece(raw: bytes, offset: int, size: int, name: str, value: Any) -> Piece:
    return {"offset": offset, "field": name, "value": value, "hex": raw[offset:][:size].hex()}


def _fields(raw: bytes, offset: int, fields: tuple[tuple[str, str], ...]) -> Iterator[Piece]:
    for name, form in fields:
        yield _number(raw, offset, name, form)
        offset += struct.calcsize(_FORMS[form])


def _control(raw: bytes) -> Iterator[Piece]:
    yield from _fields(raw, 0, (("format version", "int"), ("creation time", "long")))
    yield _piece(raw, 12, 16, "cluster key", str(UUID(bytes=raw[12:28])))
    yield _number(raw, 28, "number of partitions", "int")
    yield _piece(raw, 32, 96, "zeros", None)
    for entry in range(HEADER_BYTES, len(raw), ENTRY_BYTES):
        yield _number(raw, entry, "partition id", "int")
        for number, offset in ((1, entry + 4), (2, entry + 40)):
            named = tuple((f"struct {number}: {name}", form) for name, form in _ENTRY_FIELDS)
            yield from _fields(raw, offset, named)


def _header(raw: bytes) -> Iterator[Piece]:
    yield from _fields(raw, 0, (("format version", "int"), ("creation time", "long")))
    yield _piece(raw, 12, 16, "cluster key", str(UUID(bytes=raw[12:28])))
    yield from _fields(raw, 28, (("partition", "int"), ("first transaction id", "long")))
    yield _piece(raw, 40, 88, "zeros", None)


def _records(raw: bytes) -> Iterator[Piece]:
    offset = HEADER_BYTES
    while offset < len(raw):
        yield from _fields(raw, offset, _RECORD_FIELDS)
        (length,) = struct.unpack_from(">i", raw, offset + 28)
        data = offset + RECORD_HEAD_BYTES
        text = raw[data : data + length].decode("ascii")
        yield _piece(raw, data, length, "data", text)
        yield _number(raw, data + length, "record checksum", "int")
        offset = data + length + 4


def record_fields(raw: bytes) -> list[dict[str, Any]]:
    """Return the records of a segment file, as the manifest has them."""
    found, offset = [], HEADER_BYTES
    while offset < len(raw):
        transaction_id, *req_id, header, length, checksum = struct.unpack_from(
            ">qiiiiiii", raw, offset
        )
        end = offset + RECORD_HEAD_BYTES + length
        assert struct.unpack_from(">I", raw, end)[0] == zlib.crc32(raw[offset:end])
        found.append(
            {
                "offset": offset,
                "transactionId": transaction_id,
                "reqId": req_id,
                "header": header,
                "dataLength": length,
                "dataChecksum": checksum,
                "data_hex": raw[offset + RECORD_HEAD_BYTES : end].hex(),
            }
        )
        offset = end + 4
    return found


def made_segment(key: str, created: int, records: int) -> Files:
    """Return segment and index of partition 0 with many short records, which need no listing.

    Record *i* has the request id (7, 1, 0, i), header 0, and *i* as 8 bytes of data.
    """
    head = struct.pack(">iq16siq88x", 0, created, UUID(key).bytes, 0, 0)
    segment, index = bytearray(head), bytearray(head)
    for number in range(records):
        index += struct.pack(">q", len(segment))
        data = number.to_bytes(8, "big")
        record = struct.pack(">qiiiiiiI", number, 7, 1, 0, number, 0, 8, zlib.crc32(data)) + data
        segment += record + struct.pack(">I", zlib.crc32(record))
    name = f"0/{0:019d}"
    return {f"{name}.seg": bytes(segment), f"{name}.idx": bytes(index)}


def files_of(vectors: dict[str, Any], directory: str) -> Files:
    """Return the files of one directory of storage-dir.json."""
    listed = vectors["directories"][directory]
    files = {name: raw_of(pieces) for name, pieces in listed["files"].items()}
    if "made" in listed:
        made = listed["made"]
        made_files = made_segment(vectors["key"], made["creationTime"], made["records"])
        for name, raw in made_files.items():
            assert zlib.crc32(raw) == made["crc32"][name], name
        files |= made_files
    return files


def expand(source: Path, target: Path) -> Path:
    """Write the directories of storage-dir.json below ``target``, laid out as recorded ones."""
    vectors = json.loads(source.read_text())
    folder = target / "storage-dir"
    manifest = {name: vectors[name] for name in vectors if name not in ("directories", "damaged")}
    for name in vectors["directories"]:
        files = files_of(vectors, name)
        write(folder / name, files)
        manifest[name] = {
            "control": control_fields(files[CONTROL]),
            "partitionDirs": _partitions(files),
        }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "damaged.json").write_text(json.dumps(vectors["damaged"]))
    return target


def write(folder: Path, files: Files) -> Path:
    """Write these files; return ``folder``."""
    for name, raw in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    return folder


def _partitions(files: Files) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(files):
        if name.endswith(".seg"):
            segments = found.setdefault(name.partition("/")[0], {"segments": []})["segments"]
            segments.append({"segFile": name, "records": record_fields(files[name])})
    return found
