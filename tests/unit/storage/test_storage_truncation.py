"""A truncation at a wrong index entry is refused: it would remove committed records."""

from __future__ import annotations

import struct
import uuid

import pytest

from tests.support.inline_engine import InlineEngine
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
