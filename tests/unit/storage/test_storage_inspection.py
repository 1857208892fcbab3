"""Test that the inspection of files distinguishes unreadable files from damaged ones."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from waltz.cli.disk.rows import render_verification
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.directory_pair import DATA_PAIR_FILE
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.inspect.control_reading import read_control
from waltz_storage.inspect.dry_disk import Change
from waltz_storage.inspect.places import CannotInspect, Place, check_stopped, locate
from waltz_storage.inspect.segment_reading import check_segment_files
from waltz_storage.inspect.start_rehearsal import StartOutcome, try_start
from waltz_storage.shell.posix_disk import PosixDisk


def refusing(call: Callable[..., Any], refused: Path) -> Callable[..., Any]:
    """Return ``call``, which this process may not do with the path ``refused``."""

    def guarded(path: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(path, str | Path) and Path(path) == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return call(path, *arguments, **options)

    return guarded


@pytest.mark.parametrize("file", [CONTROL_FILE, DATA_PAIR_FILE])
def test_storage_directory_whose_name_is_a_number_is_no_partition(
    tmp_path: Path, file: str
) -> None:
    root = tmp_path / "0"
    partition = root / "3"
    partition.mkdir(parents=True)
    (root / file).touch()
    assert locate(root) == Place(root, (3,), whole=True)
    assert locate(partition) == Place(root, (3,))


@pytest.mark.parametrize("call", ["open", "stat"])
@pytest.mark.parametrize("suffix", ["seg", "idx"])
def test_rehearsal_reports_a_file_that_it_may_not_read_as_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, call: str
) -> None:
    directory = StorageDirectory(PosixDisk(tmp_path), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    directory.close()
    control = read_control(tmp_path, None)
    assert try_start(tmp_path, 0, control).sound

    path = f"0/0000000000000000000.{suffix}"
    with monkeypatch.context() as patched:
        patched.setattr(os, call, refusing(getattr(os, call), tmp_path / path))
        outcome = try_start(tmp_path, 0, control)
    assert outcome == StartOutcome(f"it cannot be opened: Permission denied ({path})", None)


def test_rehearsal_of_a_refused_partition_reports_the_files_that_a_start_removes(
    tmp_path: Path,
) -> None:
    directory = StorageDirectory(PosixDisk(tmp_path), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    directory.close()
    (tmp_path / "0/0000000000000000005.seg.new").write_bytes(b"x")
    segment = tmp_path / "0/0000000000000000000.seg"
    segment.write_bytes(bytes(segment.stat().st_size))
    outcome = try_start(tmp_path, 0, read_control(tmp_path, None))
    assert not outcome.sound
    assert outcome.changes == (Change("0/0000000000000000005.seg.new", 1, None, rewritten=False),)

    directory = StorageDirectory(PosixDisk(tmp_path), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    assert set(directory.refused) == {0}
    directory.close()
    assert not (tmp_path / "0/0000000000000000005.seg.new").exists()


def test_rehearsal_of_a_partition_with_damaged_records_names_them(tmp_path: Path) -> None:
    directory = StorageDirectory(PosixDisk(tmp_path), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    sent = [Record(n, ReqId(1, 2, 0, n), 0, b"%08d" % n, 7) for n in range(5)]
    directory.partition(0).log.append(RecordBatch.of(sent))
    directory.close()
    segment = tmp_path / "0/0000000000000000000.seg"
    raw = segment.read_bytes()
    for number in (1, 2, 4):
        raw = raw.replace(b"%08d" % number, b"%08d" % 99)
    segment.write_bytes(raw)
    outcome = try_start(tmp_path, 0, read_control(tmp_path, None))
    assert outcome.sound
    assert (outcome.next_id, [str(ids) for ids in outcome.damaged]) == (5, ["1-2", "4"])
    (start,) = render_verification({}, {0: outcome}, None, 10).value["start"]
    assert start["damaged"] == ["1-2", "4"]
    (table,) = render_verification({}, {0: outcome}, None, 10).tables[1:]
    assert table.cells[-1][1] == "serve it without the damaged records 1-2, 4; the next id is 5"


@pytest.mark.parametrize("suffix", ["seg", "idx"])
def test_check_of_segment_names_the_file_that_it_may_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    directory = StorageDirectory(PosixDisk(tmp_path), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    directory.close()
    path = tmp_path / f"0/0000000000000000000.{suffix}"
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refusing(os.open, path))
        with pytest.raises(CannotInspect, match=f"cannot read {path}: Permission denied"):
            check_segment_files(tmp_path, 0, 0)


def test_lock_that_fails_for_another_reason_does_not_count_as_a_running_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StorageDirectory(PosixDisk(tmp_path), uuid.UUID(int=5), 1, LogOptions(lambda: 1)).close()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", fail)
    with pytest.raises(CannotInspect, match=r"^cannot find out .* failed: No locks available"):
        check_stopped(tmp_path)
