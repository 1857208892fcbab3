"""Truncations that would remove committed records are refused."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import entry_position
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID(int=5)
OPTIONS = LogOptions(lambda: 1)
INDEX, DATA = "0/0000000000000000000.idx", "0/0000000000000000000.seg"


@pytest.mark.parametrize("shift", [0, 1, -1, 50])
def test_truncation_at_a_wrong_index_entry_is_refused(shift: int) -> None:
    disk = MemoryDisk()
    directory = StorageDirectory(disk, KEY, 1, OPTIONS)
    directory.assign(0)
    engine = InlineEngine(directory)
    records = RecordBatch.of(Record(n, ReqId(1, 2, 0, n), 0, b"x" * 200, 7) for n in range(5))
    engine.ask(storage.AppendRequest(-1, 0, 0, records))
    engine.ask(storage.SetLowWaterMarkRequest(1, 0, 0, 4))
    directory.close()
    at = entry_position(3)
    (offset,) = struct.unpack_from(">q", disk.content(INDEX), at)
    disk.damage(INDEX, at, struct.pack(">q", offset + shift))
    log = StorageDirectory(disk, KEY, 1, OPTIONS).partition(0).log
    before = disk.content(DATA)
    if shift == 0:
        log.truncate(2)
        assert log.max_id == 2
        return
    with pytest.raises(PartitionDamaged):
        log.truncate(2)
    assert disk.content(DATA) == before
    assert log.max_id == 4


def _engine(marked_at: int = 4) -> InlineEngine:
    """Return an engine with the records 0 to 4, whose session 7 has this low-water mark."""
    directory = StorageDirectory(MemoryDisk(), KEY, 1, OPTIONS)
    directory.assign(0)
    engine = InlineEngine(directory)
    records = RecordBatch.of(Record(n, ReqId(1, 2, 0, n), 0, b"x", 7) for n in range(5))
    engine.ask(storage.AppendRequest(-1, 0, 0, records))
    if marked_at >= 0:
        engine.ask(storage.SetLowWaterMarkRequest(7, 0, 0, marked_at))
    return engine


def _ask(engine: InlineEngine, request: Any, version: int) -> Any:
    answers: list[Any] = []
    engine.submit([arrival(request, answers.append, version)])
    (answer,) = answers
    return answer


def _end(engine: InlineEngine) -> int:
    return engine.directory.partition(0).log.max_id


@pytest.mark.parametrize(
    ("version", "keep", "refused"),
    [
        (3, -1, True),
        (3, 3, True),
        (3, 4, False),
        (2, -1, True),
        (0, -1, True),
        (0, 3, False),
        (0, 0, False),
    ],
)
def test_truncation_below_low_water_mark_depends_on_version(
    version: int, keep: int, refused: bool
) -> None:
    engine = _engine()
    answer = _ask(engine, storage.TruncateRequest(8, 1, 0, keep), version)
    if refused:
        assert isinstance(answer, storage.FailureResponse)
        assert "waltz cluster rescue" in (answer.failure.message or "")
        assert _end(engine) == 4
    else:
        assert answer.transaction_id == _end(engine) == keep


@pytest.mark.parametrize("version", [0, 3])
def test_truncation_to_empty_is_allowed_without_low_water_mark(version: int) -> None:
    engine = _engine(marked_at=-1)
    assert _ask(engine, storage.TruncateRequest(8, 1, 0, -1), version).transaction_id == -1


def test_truncation_below_named_mark_is_performed() -> None:
    engine = _engine()
    assert _ask(engine, storage.TruncateBelowMarkRequest(8, 1, 0, 2, 4), 3).transaction_id == 2


@pytest.mark.parametrize("mark", [3, 5])
def test_truncation_that_names_a_wrong_mark_is_refused(mark: int) -> None:
    engine = _engine()
    answer = _ask(engine, storage.TruncateBelowMarkRequest(8, 1, 0, 2, mark), 3)
    assert isinstance(answer, storage.FailureResponse)
    text = f"the low-water mark is 4, but the server names {mark}"
    assert text in (answer.failure.message or "")
    assert _end(engine) == 4


def test_truncated_log_below_local_mark_can_be_emptied_by_old_servers() -> None:
    """Such a log is being copied again; the vectors of 0.13.2 empty it."""
    engine = _engine()
    _ask(engine, storage.TruncateRequest(8, 1, 0, 2), 0)
    assert _ask(engine, storage.TruncateRequest(8, 1, 0, -1), 0).transaction_id == -1
