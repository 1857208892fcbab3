"""Test that exported logs are read back, and that the names of files show the exported range."""

from __future__ import annotations

import errno
import json
import os
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.cli.log.archive import BadArchive, Form, Piece, Row, exported_up_to, from_json, pieces
from waltz.cli.log.archive_files import find_pieces, read_piece, read_rows, write_piece
from waltz.cli.log.import_record import ImportRecord, PartitionImport
from waltz.cli.running import Failed
from waltz.cli.transactions import as_value
from waltz.client import Transaction
from waltz.protocol import ReqId

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


def transaction(number: int, data: bytes = b"x", header: int = 0) -> Transaction:
    return Transaction(3, number, ReqId(5, 1, 3, 9), header, data)


CONTENTS = st.lists(
    st.tuples(st.binary(max_size=40) | st.text().map(str.encode), INT32), min_size=1
)


@pytest.mark.parametrize("form", Form)
@given(contents=CONTENTS, first_id=st.integers(0, 1 << 62))
def test_archive_round_trip_keeps_rows(
    tmp_path_factory: pytest.TempPathFactory,
    form: Form,
    contents: list[tuple[bytes, int]],
    first_id: int,
) -> None:
    if form is Form.PARQUET:
        pytest.importorskip("pyarrow")
    directory = tmp_path_factory.mktemp("archive")
    held = [transaction(first_id + n, data, header) for n, (data, header) in enumerate(contents)]
    piece = write_piece(directory, form, held)
    rows = list(read_piece(directory, piece))
    assert rows == [Row(3, t.id, t.header, t.data) for t in held]
    assert find_pieces(directory) == {3: [piece]}


def test_lines_of_log_read_are_accepted() -> None:
    for data in (b"text", b"\xff\x00"):
        line = json.dumps(as_value(transaction(7, data, 4)))
        assert from_json(line) == Row(3, 7, 4, data)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "neither data nor data_base64"),
        ('{"data_base64": "%"}', "not base64"),
        ('{"data_base64": "é"}', "not base64"),
        ('{"data": "\\ud800"}', "data is not text"),
        ('{"data": "x", "header": "y"}', "header is 'y'"),
        ('{"data": "x", "header": 4294967296}', "more than 32 bits"),
        ('{"data": "x", "partition": 1.5}', "partition is 1.5"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_malformed_lines_are_refused(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"data": "fine"}\n' + line)
    rows = read_rows(file)
    assert next(rows) == Row(None, None, 0, b"fine")
    with pytest.raises(BadArchive, match="line 2") as refused:
        next(rows)
    assert why in str(refused.value)


def test_line_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"data": "fine"}\n{"data": "\xff"}\n')
    rows = read_rows(file)
    assert next(rows) == Row(None, None, 0, b"fine")
    with pytest.raises(BadArchive, match=r"x\.jsonl, line 2: it is not UTF-8 text"):
        next(rows)


def test_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "x.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(BadArchive, match=r"x\.parquet"):
        list(read_rows(file))


def test_parquet_file_with_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data = arrow.array([b"\xff"]).view(arrow.string())
    parquet.write_table(arrow.table({"data": data}), tmp_path / "x.parquet")
    with pytest.raises(BadArchive, match=r"x\.parquet: 'utf-8' codec"):
        list(read_rows(tmp_path / "x.parquet"))


def test_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / write_piece(tmp_path, Form.PARQUET, [transaction(0)]).path
    with file.open("r+b") as damaged:
        damaged.seek(len(b"PAR1"))
        damaged.write(b"\xee" * 8)
    with pytest.raises(BadArchive, match=r"\.parquet: "):
        list(read_rows(file))


def test_truncated_file_of_an_export_is_detected(tmp_path: Path) -> None:
    piece = write_piece(tmp_path, Form.JSONL, [transaction(0), transaction(1)])
    file = tmp_path / piece.path
    os.truncate(file, file.read_text().index("\n") + 1)
    with pytest.raises(BadArchive, match="has 1 transactions, but its name says 2"):
        list(read_piece(tmp_path, piece))


def test_archive_piece_names_show_exported_range() -> None:
    later = Piece(0, 10, 14, Form.PARQUET)
    paths = [
        later.path,
        Piece(0, 0, 9, Form.JSONL).path,
        "partition-0/0.partial",
        f"partition-007/{Path(later.path).name}",
        "x",
        "y/z",
    ]
    found = pieces(paths)
    assert [piece.count for piece in found[0]] == [10, 5]
    assert (exported_up_to(found, 0), exported_up_to(found, 1)) == (14, -1)


@pytest.mark.parametrize("first_id", [8, 11])
def test_gaps_and_overlaps_of_pieces_are_refused(first_id: int) -> None:
    paths = [Piece(0, 0, 9, Form.JSONL).path, Piece(0, first_id, 20, Form.JSONL).path]
    with pytest.raises(
        BadArchive, match=r"must begin with transaction 10, but it is partition-0/0"
    ):
        pieces(paths)


def test_import_record_round_trip_keeps_partitions(tmp_path: Path) -> None:
    file, key = tmp_path / "record.json", uuid.UUID(int=5)
    assert ImportRecord.read(file, key).partitions == {}
    known = ImportRecord(key, {3: PartitionImport(41, [7, 9])})
    known.write(file)
    assert ImportRecord.read(file, key) == known
    with pytest.raises(BadArchive, match="into another cluster"):
        ImportRecord.read(file, uuid.UUID(int=6))
    for malformed in ("[]", "[" * 100_000):
        file.write_text(malformed)
        with pytest.raises(BadArchive, match="not the record of an import"):
            ImportRecord.read(file, key)
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The calls of fsync: the name of each file or directory, and the files beside or in it."""
    flushes: list[tuple[str, list[str]]] = []
    flush = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        directory = path if path.is_dir() else path.parent
        flushes.append((path.name, sorted(each.name for each in directory.iterdir())))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return flushes


def test_import_record_write_flushes_file_and_then_directory(
    tmp_path: Path, flushed: list[tuple[str, list[str]]]
) -> None:
    ImportRecord(uuid.UUID(int=5), {3: PartitionImport(41, [7, 9])}).write(tmp_path / "record.json")
    assert flushed == [
        ("record.json.new", ["record.json.new"]),
        (tmp_path.name, ["record.json"]),
    ]


def test_written_piece_flushes_file_and_then_directory(
    tmp_path: Path, flushed: list[tuple[str, list[str]]]
) -> None:
    piece = write_piece(tmp_path, Form.JSONL, [transaction(0)])
    assert flushed == [
        ("3.partial", ["3.partial"]),
        ("partition-3", [Path(piece.path).name]),
    ]


FULL = "cannot be written: No space left on device; free space, and run the same command again$"


@pytest.mark.parametrize("form", Form)
def test_file_of_an_export_on_a_full_disk_fails_and_is_removed(tmp_path: Path, form: Form) -> None:
    if form is Form.PARQUET:
        pytest.importorskip("pyarrow")
    directory = tmp_path / "partition-3"
    directory.mkdir()
    (directory / "3.partial").symlink_to("/dev/full")
    with pytest.raises(Failed, match=rf"partition-3/{0:019d}-{0:019d}\.{form} {FULL}"):
        write_piece(tmp_path, form, [transaction(0)])
    assert list(directory.iterdir()) == []


def test_record_of_an_import_on_a_full_disk_fails_and_is_unchanged(tmp_path: Path) -> None:
    file, key = tmp_path / "record.json", uuid.UUID(int=5)
    before = ImportRecord(key, {3: PartitionImport(41, [7])})
    before.write(file)
    (tmp_path / "record.json.new").symlink_to("/dev/full")
    with pytest.raises(Failed, match=rf"record\.json {FULL}"):
        ImportRecord(key, {3: PartitionImport(41, [7, 9])}).write(file)
    assert ImportRecord.read(file, key) == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EDQUOT, "Disk quota exceeded; free space, and"), (errno.EIO, "Input/output error$")],
)
def test_file_whose_flush_fails_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Failed, match=rf"\.jsonl cannot be written: {reason}"):
        write_piece(tmp_path, Form.JSONL, [transaction(0)])
    assert list((tmp_path / "partition-3").iterdir()) == []
