"""Test that ``waltz disk wal`` shows a log, and that other verbs refuse segments that need it."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.disk import flatten as disk_flatten
from waltz.cli.disk.wal import render_log
from waltz.protocol import Record, RecordBatch, ReqId
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import HEADER_BYTES
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.catalogue import CATALOGUE_REGION, ROW_BYTES
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.core.wal.operations import Address, WriteData
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.core.wal.wal_header import HEADER_BLOCKS
from waltz_storage.inspect.wal_reading import read_wal
from waltz_storage.shell.flattening import FlattenResult, RefusedPartition
from waltz_storage.shell.posix_disk import PosixDisk
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

KEY = uuid.UUID(int=99)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A copy of the directory of a running storage with the engine ``wal``."""
    return crashed_after(tmp_path, 2)


def crashed_after(tmp_path: Path, records: int) -> Path:
    """Return a copy of the directory of a storage that has not yet moved ``records`` of its log."""
    running = tmp_path / "running"
    running.mkdir()
    wal = WalEngine(WalOptions(16 * BLOCK_BYTES, lambda: 0.0))
    options = LogOptions(lambda: 1, allocate_bytes=0)
    directory = StorageDirectory(PosixDisk(running), KEY, 1, options, wal=wal)
    directory.assign(0)
    wal.commits.checkpoint()
    for number in range(records):
        batch = RecordBatch.of([Record(number, ReqId(1, 2, 0, number), 0, b"data", 7)])
        directory.partition(0).log.append(batch)
    copy = tmp_path / "copy"
    shutil.copytree(running, copy)
    directory.close()
    return copy


def _cut_to_header(wal: Path) -> None:
    """Cut the blocks after the header from a log."""
    with wal.open("r+b") as file:
        file.truncate(HEADER_BLOCKS * BLOCK_BYTES)


def test_wal_shows_the_operations_since_the_checkpoint(crashed: Path) -> None:
    result = CliRunner().invoke(app, ["disk", "wal", str(crashed), "-o", "json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["key"] == str(KEY)
    assert shown["checksum"] == "CRC-32"
    writes = [each for each in shown["operations"] if each["region"] != CATALOGUE_REGION]
    assert [each["type"] for each in writes][-2:] == ["write", "write"]
    assert writes[-1]["offset"] == writes[-2]["offset"] + writes[-2]["length"]
    assert not shown["damaged"]


def test_wal_with_a_damaged_transaction_fails(crashed: Path) -> None:
    shown = json.loads(CliRunner().invoke(app, ["disk", "wal", str(crashed), "-o", "json"]).stdout)
    block = shown["operations"][-2]["block"]
    with (crashed / WAL_FILE).open("r+b") as file:
        file.seek(block * BLOCK_BYTES + 30)
        file.write(b"?")
    result = CliRunner().invoke(app, ["disk", "wal", str(crashed)])
    assert result.exit_code == 1
    assert "is damaged" in result.output.replace("\n", " ")


def test_wal_with_damage_after_the_limit_fails(tmp_path: Path) -> None:
    crashed = crashed_after(tmp_path, 5)
    shown = json.loads(CliRunner().invoke(app, ["disk", "wal", str(crashed), "-o", "json"]).stdout)
    block = shown["operations"][-2]["block"]
    with (crashed / WAL_FILE).open("r+b") as file:
        file.seek(block * BLOCK_BYTES + 30)
        file.write(b"?")
    limited = ["disk", "wal", str(crashed), "--limit", "1", "-o", "json"]
    result = CliRunner().invoke(app, limited)
    assert result.exit_code == 1
    damaged = json.loads(result.stdout)
    assert damaged["damaged"]
    assert "is damaged" in damaged["end"]


def test_wal_that_is_shorter_than_its_header_says_fails(crashed: Path) -> None:
    """A start refuses such a log, too: transactions may have been in the missing blocks."""
    _cut_to_header(crashed / WAL_FILE)
    result = CliRunner().invoke(app, ["disk", "wal", str(crashed), "-o", "json"])
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert shown["damaged"]
    assert "its header says 65536" in shown["end"]


def test_wal_with_more_transactions_than_the_limit_shows_the_first(crashed: Path) -> None:
    whole = json.loads(CliRunner().invoke(app, ["disk", "wal", str(crashed), "-o", "json"]).stdout)
    limited = ["disk", "wal", str(crashed), "--limit", "1", "-o", "json"]
    result = CliRunner().invoke(app, limited)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert whole["transactions"] == whole["total_transactions"] > 1
    assert (shown["transactions"], shown["total_transactions"]) == (1, whole["transactions"])
    assert shown["end"] == whole["end"]
    assert {each["transaction"] for each in shown["operations"]} == {
        whole["operations"][0]["transaction"]
    }


def test_wal_with_an_invalid_row_of_the_catalogue_shows_why(crashed: Path) -> None:
    """A start refuses such a log; the verb must show what is in it."""
    content = read_wal(crashed, 1)
    invalid_row = WriteData(Address(CATALOGUE_REGION, 5 * ROW_BYTES), b"?" * ROW_BYTES)
    transaction = replace(content.transactions[0], operations=(invalid_row,))
    rendering = render_log(replace(content, transactions=(transaction,)))
    (operation,) = rendering.value["operations"]
    assert operation["row"] == "row 5 of the catalogue fails its checksum"


def test_disk_wal_help_names_the_directory_of_the_log() -> None:
    result = CliRunner().invoke(app, ["disk", "wal", "--help"], env={"COLUMNS": "200"})
    assert "storage.wal.directory" in result.output


def test_disk_wal_command_without_a_log_fails(crashed: Path) -> None:
    (crashed / WAL_FILE).unlink()
    result = CliRunner().invoke(app, ["disk", "wal", str(crashed)])
    assert result.exit_code == 1
    assert "cannot read" in result.output


def test_control_of_segments_that_need_the_log_is_refused(crashed: Path) -> None:
    result = CliRunner().invoke(app, ["disk", "control", str(crashed)])
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")


def verb(name: str, directory: Path) -> list[str]:
    segment = directory / "0" / "0000000000000000000.seg"
    return ["disk", name, str(segment if name == "dump" else directory)]


@pytest.mark.parametrize("name", ["stat", "dump", "export"])
def test_verbs_that_read_records_refuse_segments_that_need_the_log(
    crashed: Path, name: str
) -> None:
    """Without this check they would show the records of the last checkpoint only."""
    result = CliRunner().invoke(app, verb(name, crashed))
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")


@pytest.mark.parametrize("name", ["stat", "dump", "export"])
def test_verbs_that_read_records_refuse_a_copy_without_its_control_file(
    crashed: Path, name: str
) -> None:
    (crashed / CONTROL_FILE).unlink()
    (crashed / FLUSHED_FILE).unlink()
    result = CliRunner().invoke(app, verb(name, crashed))
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")


def test_verb_refuses_a_copy_without_its_control_file_whose_log_is_cut(crashed: Path) -> None:
    (crashed / CONTROL_FILE).unlink()
    (crashed / FLUSHED_FILE).unlink()
    _cut_to_header(crashed / WAL_FILE)
    result = CliRunner().invoke(app, verb("stat", crashed))
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")


@pytest.mark.parametrize("name", ["control", "stat", "dump", "export"])
def test_verbs_refuse_segments_whose_log_is_in_another_directory(crashed: Path, name: str) -> None:
    (crashed / WAL_FILE).unlink()
    result = CliRunner().invoke(app, verb(name, crashed))
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")


@pytest.fixture
def crashed_in_three(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Copies of the directories of a running storage: of the data, the control file and the log."""
    names = ("data", "meta", "wal")
    for name in names:
        (tmp_path / "running" / name).mkdir(parents=True)
    data, meta, log = (PosixDisk(tmp_path / "running" / name) for name in names)
    wal = WalEngine(WalOptions(16 * BLOCK_BYTES, lambda: 0.0, directory=log))
    directory = StorageDirectory(data, KEY, 1, LogOptions(lambda: 1, allocate_bytes=0), meta, wal)
    directory.assign(0)
    wal.commits.checkpoint()
    record = Record(0, ReqId(1, 2, 0, 0), 0, b"data", 7)
    directory.partition(0).log.append(RecordBatch.of([record]))
    shutil.copytree(tmp_path / "running", tmp_path / "copy")
    directory.close()
    return tmp_path / "copy" / "data", tmp_path / "copy" / "meta", tmp_path / "copy" / "wal"


@pytest.mark.parametrize("name", ["stat", "dump", "export"])
def test_verb_without_the_meta_directory_of_segments_that_may_need_the_log_asks_for_it(
    crashed_in_three: tuple[Path, Path, Path], name: str
) -> None:
    """Only the control file shows whether the log in the other directory is needed."""
    data, meta, log = crashed_in_three
    result = CliRunner().invoke(app, verb(name, data))
    assert result.exit_code == 1
    assert "name that with --meta" in result.output.replace("\n", " ")
    result = CliRunner().invoke(app, [*verb(name, data), "--meta", str(meta)])
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")
    directories = [str(data), "--meta", str(meta), "--wal", str(log)]
    assert CliRunner().invoke(app, ["disk", "flatten", *directories]).exit_code == 0
    assert CliRunner().invoke(app, verb(name, data)).exit_code == 0


@pytest.mark.parametrize("name", ["stat", "dump", "export"])
def test_verb_reads_segments_of_three_directories_after_a_clean_stop(
    crashed_in_three: tuple[Path, Path, Path], name: str
) -> None:
    stopped = crashed_in_three[0].parent.parent / "running"
    result = CliRunner().invoke(
        app, [*verb(name, stopped / "data"), "--meta", str(stopped / "meta")]
    )
    assert result.exit_code == 0, result.output


def test_stat_of_segments_whose_log_beside_them_is_lost_asks_for_the_meta_directory(
    crashed_in_three: tuple[Path, Path, Path],
) -> None:
    data, _, _ = crashed_in_three
    (data / LOG_PAIR_FILE).unlink()
    result = CliRunner().invoke(app, verb("stat", data))
    assert result.exit_code == 1
    assert "name that with --meta" in result.output.replace("\n", " ")


def test_stat_of_segments_with_an_old_empty_log_beside_them_asks_for_the_meta_directory(
    crashed_in_three: tuple[Path, Path, Path],
) -> None:
    """Such a log stays if `storage.wal.directory` was set later."""
    data, _, log = crashed_in_three
    empty_log = data.parent.parent / "running" / log.name / WAL_FILE
    shutil.copy(empty_log, data / WAL_FILE)
    result = CliRunner().invoke(app, verb("stat", data))
    assert result.exit_code == 1
    assert "name that with --meta" in result.output.replace("\n", " ")


def test_verb_takes_the_key_of_a_segment_whose_header_is_not_only_in_the_log(crashed: Path) -> None:
    (crashed / WAL_FILE).unlink()
    segment = Path("0", "0000000000000000000.seg")
    content = bytearray((crashed / segment).read_bytes())
    (crashed / "1").mkdir()
    (crashed / "1" / segment.name).write_bytes(content)
    content[:HEADER_BYTES] = bytes(HEADER_BYTES)
    (crashed / segment).write_bytes(content)
    result = CliRunner().invoke(app, verb("control", crashed))
    assert result.exit_code == 1
    assert "complete only with their write-ahead log" in result.output.replace("\n", " ")


@pytest.mark.parametrize("name", ["control", "stat", "dump", "export"])
def test_verbs_read_segments_after_a_clean_stop(crashed: Path, name: str) -> None:
    """The fixture has stopped the storage in this directory cleanly."""
    stopped = crashed.parent / "running"
    result = CliRunner().invoke(app, verb(name, stopped))
    assert result.exit_code == 0, result.output
    (stopped / WAL_FILE).write_bytes(b"damaged")
    result = CliRunner().invoke(app, verb(name, stopped))
    assert result.exit_code == 0, result.output


def test_verify_of_segments_that_need_the_log_shows_that_and_fails(crashed: Path) -> None:
    result = CliRunner().invoke(app, ["disk", "verify", str(crashed), "-o", "json"])
    assert result.exit_code == 1
    (start,) = json.loads(result.stdout)["start"]
    assert "complete only with their write-ahead log" in start["refused"]
    shown = CliRunner().invoke(app, ["disk", "verify", str(crashed)]).stdout
    assert "need the write-ahead log: the segments" in shown
    assert "refuse the partition" not in shown


def test_wal_in_a_directory_of_its_own_is_shown(crashed: Path) -> None:
    wal_directory = crashed.parent / "wal"
    wal_directory.mkdir()
    shutil.move(crashed / WAL_FILE, wal_directory / WAL_FILE)
    result = CliRunner().invoke(app, ["disk", "wal", str(wal_directory), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["key"] == str(KEY)


def test_flatten_makes_segments_that_other_verbs_read(crashed: Path) -> None:
    result = CliRunner().invoke(app, ["disk", "flatten", str(crashed), "-o", "json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["transactions"] > 0
    assert shown["refused"] == []
    assert not (crashed / WAL_FILE).exists()
    result = CliRunner().invoke(app, ["disk", "export", str(crashed)])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize("output", ["table", "template={directory}"])
def test_flatten_of_a_directory_whose_name_is_not_utf8_shows_its_result(
    crashed: Path, output: str
) -> None:
    """The directory is flat already when its name is printed."""
    named = crashed.rename(crashed.with_name(os.fsdecode(b"\xe9")))
    result = CliRunner().invoke(app, ["disk", "flatten", str(named), "-o", output])
    assert result.exit_code == 0, result.output
    assert r"/\udce9" in result.stdout


def test_flatten_without_its_log_fails_in_one_line(crashed: Path) -> None:
    (crashed / WAL_FILE).unlink()
    result = CliRunner().invoke(app, ["disk", "flatten", str(crashed)])
    assert result.exit_code == 1
    assert "is not flattened: the file waltz-storage.wal is missing" in result.output


def test_flatten_with_a_refused_partition_shows_it_and_fails(
    crashed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = (RefusedPartition(0, "it is damaged"),)
    result = FlattenResult(2, interrupted=False, refused=refused)
    monkeypatch.setattr(disk_flatten, "flatten", lambda *_: result)
    shown = CliRunner().invoke(app, ["disk", "flatten", str(crashed)])
    assert shown.exit_code == 1
    assert "it is damaged" in shown.output


def test_flatten_of_a_single_partition_is_refused(crashed: Path) -> None:
    result = CliRunner().invoke(app, ["disk", "flatten", str(crashed / "0")])
    assert result.exit_code == 1
    assert "name its whole directory" in result.output.replace("\n", " ")
    assert (crashed / WAL_FILE).exists()
