"""Test that ``waltz disk`` changes no file, and reports damage and the effect of a start."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.cli.disk.rows import hex_dump
from waltz.cli.log.archive import from_json
from waltz.protocol import Record, RecordBatch, ReqId, checksum
from waltz.protocol.storage import SetLowWaterMarkRequest
from waltz_storage.core.control.control_format import CONTROL_FILE, ENTRY_BYTES
from waltz_storage.core.control.directory_pair import DATA_PAIR_FILE
from waltz_storage.core.log import segment_format
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.inspect.control_reading import read_control
from waltz_storage.inspect.start_rehearsal import try_start
from waltz_storage.shell.posix_disk import PosixDisk

KEY = uuid.UUID(int=99)
RECORDS = 14
FIRST, LAST = "0000000000000000000", "0000000000000000012"
"""The names of the first and the last segment, by their first transactions: 0 and 12."""


def options() -> LogOptions:
    return LogOptions(lambda: 1_700_000_000_000, segment_threshold=300, allocate_bytes=0)


def record(n: int) -> Record:
    """Return the transaction ``n``. Its header is its id; every fourth one has no data."""
    data = f"record {n} ".encode() * (n % 4)
    return Record(n, ReqId(7, 3, 1, n), n, data, checksum(data))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("storage")
    directory = StorageDirectory(PosixDisk(path), KEY, 3, options())
    directory.assign(1)
    directory.assign(2)
    directory.partition(1).log.append(RecordBatch.of(map(record, range(RECORDS))))
    directory.close()
    return path


@pytest.fixture
def storage(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "storage")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["disk", *arguments])


def value(*arguments: str, status: int = 0) -> Any:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def hashes(path: Path) -> dict[str, str]:
    files = (each for each in path.rglob("*") if each.is_file())
    return {str(f.relative_to(path)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.fixture
def only_readable(storage: Path) -> Iterator[Path]:
    modes = {each: each.stat().st_mode for each in (storage, *storage.rglob("*"))}
    for each in modes:
        each.chmod(0o555 if each.is_dir() else 0o444)
    yield storage
    for each, mode in modes.items():
        each.chmod(mode)


def test_disk_verbs_change_no_file(only_readable: Path) -> None:
    path, segment = str(only_readable), only_readable / "1" / f"{LAST}.seg"
    before, times = hashes(only_readable), only_readable.stat().st_mtime_ns
    for arguments in (
        ("verify", path),
        ("stat", path),
        ("control", path),
        ("verify", str(segment)),
        ("dump", str(segment)),
    ):
        assert run(*arguments).exit_code == 0
    assert hashes(only_readable) == before
    assert only_readable.stat().st_mtime_ns == times


def test_verify_of_torn_tail_changes_nothing(storage: Path) -> None:
    _write_torn_record(storage)
    before = hashes(storage)
    shown = value("verify", str(storage), status=1)
    assert hashes(storage) == before
    last = shown["segments"][-2]  # The last segment of partition 1; after it comes partition 2.
    assert (last["records"], last["last_id"], last["tail"]) == (
        2,
        13,
        "an incomplete or invalid record",
    )
    start = next(each for each in shown["start"] if each["partition"] == 1)
    assert start["next_id"] == 14
    (cut,) = (each for each in start["changes"] if each["file"].endswith(".seg"))
    assert cut["size_after"] == last["end"]
    table = run("verify", str(storage / "1"))
    assert f"cut off {last['tail_bytes']} bytes, at byte {last['end']}" in table.stdout


def test_verify_of_flushed_record_that_is_torn_reports_damage(storage: Path) -> None:
    segment = storage / "1" / f"{LAST}.seg"
    os.truncate(segment, segment.stat().st_size - 3)
    shown = value("verify", str(storage), status=1)
    start = next(each for each in shown["start"] if each["partition"] == 1)
    assert "the log was flushed up to record 13, but record 13 is missing" in start["refused"]
    assert start["changes"] == []
    (storage / "1" / "0000000000000000015.seg.new").write_bytes(b"x")
    table = run("verify", str(storage / "1")).stdout
    assert "remove this file, which an interrupted creation left" in table
    assert "refuse the partition: the log was flushed up to record 13" in table


def _write_torn_record(storage: Path) -> None:
    """Leave the files as after the death of a process in the middle of an append."""
    copy = storage.with_name("copy")
    shutil.copytree(storage, copy)
    log = StorageDirectory(PosixDisk(copy), KEY, 3, options()).partition(1).log
    log.write(log.stage([RecordBatch.of([record(RECORDS)])]))
    written = copy / "1" / f"{LAST}.seg"
    (storage / "1" / f"{LAST}.seg").write_bytes(written.read_bytes()[:-3])


def test_verify_continues_after_flipped_bit(storage: Path) -> None:
    segment = storage / "1" / f"{FIRST}.seg"
    content = bytearray(segment.read_bytes())
    at = content.index(b"record 2 ")
    content[at] ^= 1
    segment.write_bytes(content)
    shown = value("verify", str(segment), status=1)
    (report,) = shown["segments"]
    assert (report["records"], report["last_id"], report["tail"]) == (3, 3, "nothing")
    (flaw,) = shown["flaws"]
    assert (flaw["transaction"], flaw["segment"]) == (2, 0)
    assert "fails its checksum" in flaw["problem"]
    assert value("verify", str(segment), "-t", "3", status=1)["flaws"] == []


def test_verify_accepts_zeros_after_the_end(storage: Path) -> None:
    segment = storage / "1" / f"{LAST}.seg"
    end = segment.stat().st_size
    os.truncate(segment, end + 5000)
    shown = value("verify", str(segment))
    assert (shown["segments"][0]["tail"], shown["flaws"]) == ("zeros, allocated ahead", [])
    assert shown["start"][0]["changes"][0]["size_after"] == end


def test_verify_reports_missing_index(storage: Path) -> None:
    (storage / "1" / f"{LAST}.idx").unlink()
    shown = value("verify", str(storage / "1"), status=1)
    assert shown["flaws"][0]["problem"] == f"there is no {LAST}.idx"
    assert "cannot be opened" in shown["start"][0]["refused"]


def test_verify_reports_index_with_wrong_entry_below_local_mark(storage: Path) -> None:
    directory = StorageDirectory(PosixDisk(storage), KEY, 3, options())
    directory.partition(1).handle(SetLowWaterMarkRequest(4, 0, 1, RECORDS - 1), 0)
    directory.close()
    index = storage / "1" / f"{LAST}.idx"
    sound = index.read_bytes()
    rest = sound[segment_format.HEADER_BYTES + segment_format.ENTRY_BYTES :]
    wrong_entry = bytes(segment_format.ENTRY_BYTES)
    index.write_bytes(sound[: segment_format.HEADER_BYTES] + wrong_entry + rest)
    shown = value("verify", str(storage / "1"), status=1)
    (flaw,) = shown["flaws"]
    assert (flaw["transaction"], flaw["problem"]) == (12, "the index has the record at byte 0")
    (change,) = shown["start"][0]["changes"]
    assert change["file"] == f"1/{LAST}.idx"
    assert "rebuild the index from the records" in run("verify", str(storage)).stdout
    StorageDirectory(PosixDisk(storage), KEY, 3, options()).close()
    assert index.read_bytes() == sound


def test_verify_reports_files_lost_below_local_mark(storage: Path) -> None:
    directory = StorageDirectory(PosixDisk(storage), KEY, 3, options())
    directory.partition(1).handle(SetLowWaterMarkRequest(4, 0, 1, RECORDS - 1), 0)
    directory.close()
    assert value("verify", str(storage))["start"][0]["refused"] is None
    shutil.rmtree(storage / "1")
    start = value("verify", str(storage), status=1)["start"][0]
    lost = f"directory is missing, although the partition has records up to {RECORDS - 1}"
    assert start["next_id"] is None
    assert lost in start["refused"]
    assert lost in run("verify", str(storage)).stdout


def test_verify_reports_data_failing_client_checksum(storage: Path) -> None:
    directory = StorageDirectory(PosixDisk(storage), KEY, 3, options())
    wrong = replace(record(RECORDS), checksum=1)
    directory.partition(1).log.append(RecordBatch.of([wrong]))
    directory.close()
    (flaw,) = value("verify", str(storage / "1"), status=1)["flaws"]
    assert flaw["transaction"] == RECORDS
    assert flaw["problem"] == "the data fails the checksum that the client gave"


def test_stat_and_dump_show_sizes_and_content(storage: Path) -> None:
    total = value("stat", str(storage))[-1]
    lengths = [len(record(n).data) for n in range(RECORDS)]
    assert (total["records"], total["sum"]) == (RECORDS, sum(lengths))
    assert (total["max"], total["min"]) == (max(lengths), min(lengths))
    segment = str(storage / "1" / f"{FIRST}.seg")
    dumped = value("dump", segment, "--transaction", "1-2")
    assert dumped["header"]["key"] == str(KEY)
    assert [(r["id"], r["client_id"], r["seq"]) for r in dumped["records"]] == [
        (1, 7, 1),
        (2, 7, 2),
    ]
    assert "records" not in value("dump", segment, "--metadata")
    assert "header" not in value("dump", segment, "--records")
    assert "record 2 record" in run("dump", segment).stdout
    assert "record 2 record 2 " in run("dump", segment, "--data", "text").stdout
    (text,) = value("dump", segment, "-t", "1", "--data", "text")["records"]
    assert text["data"] == "record 1 "
    assert "record 2" not in run("dump", segment, "--data", "none").stdout


def test_dump_shows_data_decoded_by_serializer(storage: Path) -> None:
    segment = str(storage / "1" / f"{FIRST}.seg")
    dump = ("dump", segment, "-t", "0-1", "--serializer")
    made = value(*dump, f"{__name__}:UppercaseText")["records"]
    assert [each["data"] for each in made] == ["unreadable: no data", "RECORD 1 !"]
    assert "RECORD 1 !" in run(*dump, f"{__name__}:UppercaseText").stdout
    for name, expected in (
        ("waltz", "not of the form MODULE:NAME"),
        ("nowhere:X", "PYTHONPATH"),
        ("waltz:Nothing", "cannot be loaded"),
        ("waltz:PLAINTEXT", "no method deserialize"),
    ):
        refused = run(*dump, name)
        assert refused.exit_code == 2
        assert expected in " ".join(refused.stderr.replace("│", " ").split())


class UppercaseText:
    """Decodes data as text in capitals; refuses empty data."""

    def deserialize(self, data: bytes) -> str:
        if not data:
            raise ValueError("no data")
        return data.decode().upper() + "!"


def exported(path: Path, *arguments: str, status: int = 0) -> tuple[list[int], Result]:
    result = run("export", str(path), *arguments)
    assert result.exit_code == status, result.output
    rows = [from_json(line) for line in result.stdout.splitlines()]
    assert all((row.partition, row.header) == (1, row.id) for row in rows)
    assert all(row.data == record(row.header).data for row in rows)
    return [row.header for row in rows], result


def test_export_prints_lines_for_import(only_readable: Path) -> None:
    ids, result = exported(only_readable)
    assert ids == list(range(RECORDS))
    assert result.stderr.splitlines() == [
        f"partition 1: transactions 0 to {RECORDS - 1}",
        "partition 2: nothing",
    ]
    assert exported(only_readable, "-p", "1")[0] == ids
    assert exported(only_readable / "1" / f"{LAST}.seg")[0] == [12, 13]
    assert "no files of partitions 0" in exported(only_readable, "-p", "0-1", status=1)[1].stderr


def test_export_has_templates_yaml_and_lines_for_people(only_readable: Path) -> None:
    export = ("export", str(only_readable))
    filled = run(*export, "-o", "template={partition}/{id}").stdout.splitlines()
    assert filled == [f"1/{n}" for n in range(RECORDS)]
    assert run(*export, "-o", "json").stdout == run(*export).stdout
    assert run(*export, "-o", "yaml").stdout.startswith("---\npartition: 1\nid: 0\n")
    assert run(*export, "-o", "table").stdout.splitlines()[1].startswith("1/1 ")


def test_export_ends_at_damage_without_skip_damaged(storage: Path) -> None:
    segment = storage / "1" / f"{FIRST}.seg"
    content = bytearray(segment.read_bytes())
    content[content.index(b"record 2 ")] ^= 1
    segment.write_bytes(content)
    ids, result = exported(storage, status=1)
    assert ids == [0, 1]
    assert "record 2 fails its checksum" in " ".join(result.stderr.split())
    assert "--skip-damaged" in result.stderr
    rest, result = exported(storage, "--skip-damaged")
    assert rest == [n for n in range(RECORDS) if n != 2]
    assert "; skipped" in result.stderr


def test_export_ends_at_missing_segment(storage: Path) -> None:
    names = sorted(path.name for path in (storage / "1").glob("*.seg"))
    (storage / "1" / names[1]).unlink()
    ids, result = exported(storage, status=1)
    missing = int(names[1].partition(".")[0])
    assert ids == list(range(missing))
    assert f"transactions from {missing} on are missing before {names[2]}" in result.stderr
    assert exported(storage, "--skip-damaged")[0][-1] == RECORDS - 1
    (storage / "1" / names[0]).unlink()
    assert exported(storage, status=1)[0] == []


def test_export_ends_at_truncated_sealed_segment(storage: Path) -> None:
    names = sorted(path.name for path in (storage / "1").glob("*.seg"))
    segment = storage / "1" / names[0]
    os.truncate(segment, segment.stat().st_size - 1)
    ids, result = exported(storage, status=1)
    assert ids == list(range(int(names[1].partition(".")[0]) - 1))
    assert f"missing before {names[1]}" in result.stderr


def test_control_shows_all_entries(storage: Path) -> None:
    shown = value("control", str(storage))
    assert (shown["key"], shown["num_partitions"]) == (str(KEY), 3)
    assert [entry["assigned"] for entry in shown["entries"]] == [False, True, True]
    held = value("control", str(storage / CONTROL_FILE), "--assigned", "-p", "0-1")
    assert [entry["partition"] for entry in held["entries"]] == [1]
    control = storage / CONTROL_FILE
    os.truncate(control, control.stat().st_size - ENTRY_BYTES)
    cut = value("control", str(storage), status=1)
    assert "cut off" in cut["entries"][2]["problem"]
    assert "cut off" in run("verify", str(storage)).stdout


def test_verify_with_meta_reads_control_file_in_that_directory(tmp_path: Path) -> None:
    data, meta, other = (tmp_path / name for name in ("data", "meta", "other"))
    for each in (data, meta, other):
        each.mkdir()
    directory = StorageDirectory(PosixDisk(data), KEY, 3, options(), PosixDisk(meta))
    assert run("verify", str(data), "--meta", str(meta)).exit_code == 0
    directory.assign(1)
    directory.partition(1).log.append(RecordBatch.of(map(record, range(RECORDS))))
    directory.close()

    shown = value("verify", str(data), "--meta", str(meta))
    (start,) = shown["start"]
    assert (start["partition"], start["next_id"]) == (1, RECORDS)
    held = value("control", str(meta), "--assigned")
    assert [entry["partition"] for entry in held["entries"]] == [1]
    assert exported(data)[0] == list(range(RECORDS))
    without = value("verify", str(data), status=1)
    assert "name it with --meta" in without["start"][0]["refused"]
    foreign = value("verify", str(data), "--meta", str(other), status=1)
    assert "do not belong together" in foreign["start"][0]["refused"]


def test_control_with_meta_reads_control_file_there(tmp_path: Path) -> None:
    data, meta, other = (tmp_path / name for name in ("data", "meta", "other"))
    for each in (data, meta, other):
        each.mkdir()
    directory = StorageDirectory(PosixDisk(data), KEY, 3, options(), PosixDisk(meta))
    directory.assign(1)
    directory.close()

    assert "name it with --meta" in run("control", str(data)).stderr
    held = value("control", str(data), "--meta", str(meta), "--assigned")
    assert [entry["partition"] for entry in held["entries"]] == [1]
    assert "do not belong together" in run("control", str(data), "--meta", str(other)).stderr


HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); "
WAIT = "print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("locked", [CONTROL_FILE, DATA_PAIR_FILE, LOG_PAIR_FILE])
def test_running_storage_is_refused(storage: Path, locked: str) -> None:
    (storage / locked).touch()
    # File locks belong to a process: only another process finds them locked.
    command = [sys.executable, "-c", HOLD + WAIT, str(storage / locked)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        result = run("verify", str(storage))
        holder.communicate()
    assert result.exit_code == 1
    assert "a storage is running on" in result.stderr
    assert run("verify", str(storage)).exit_code == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nothing", "there is no storage directory"), ("empty", "has no waltz-storage.ctl")],
)
def test_path_without_storage_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    result = run("verify", str(tmp_path / name))
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert reason in line


@given(
    segment=st.sampled_from(["0000000000000000000", "0000000000000000008", LAST]),
    suffix=st.sampled_from([".seg", ".idx"]),
    cut=st.integers(0, 400),
    flip=st.one_of(st.none(), st.tuples(st.integers(0, 400), st.integers(0, 7))),
    appended=st.binary(max_size=60),
    has_unfinished_segment=st.booleans(),
)
def test_start_does_what_verify_reported(
    original: Path,
    tmp_path_factory: pytest.TempPathFactory,
    segment: str,
    suffix: str,
    cut: int,
    flip: tuple[int, int] | None,
    appended: bytes,
    has_unfinished_segment: bool,
) -> None:
    """One file is damaged: it loses its last ``cut`` bytes, one bit is flipped, bytes are appended.

    ``flip`` is the byte and the bit, None to flip no bit.
    """
    path = tmp_path_factory.mktemp("damaged") / "storage"
    shutil.copytree(original, path)
    file = path / "1" / f"{segment}{suffix}"
    content = bytearray(file.read_bytes()[: -cut or None])
    if flip is not None and flip[0] < len(content):
        content[flip[0]] ^= 1 << flip[1]
    file.write_bytes(content + appended)
    if has_unfinished_segment:
        (path / "1" / "0000000000000000015.seg.new").write_bytes(b"x")
    before = hashes(path)
    sizes = {str(f.relative_to(path)): f.stat().st_size for f in (path / "1").iterdir()}
    foretold = try_start(path, 1, read_control(path))
    assert hashes(path) == before
    directory = StorageDirectory(PosixDisk(path), KEY, 3, options())
    try:
        refused = directory.refused.get(1)
        assert (refused is None) == (foretold.refused is None), (refused, foretold)
        if refused is None:
            assert directory.partition(1).log.next_id == foretold.next_id
        for change in foretold.changes:
            assert sizes.pop(change.path) == change.size_before
            real = path / change.path
            size = real.stat().st_size if real.exists() else None
            assert size == change.size_after
        assert {name: (path / name).stat().st_size for name in sizes} == sizes
    finally:
        directory.close()
    shutil.rmtree(path)


def test_hex_dump_shows_offset_bytes_and_text() -> None:
    assert hex_dump(b"") == ""
    assert hex_dump(bytes(range(60, 77))).splitlines()[1] == f"00000010  4c{' ' * 45}  L"
