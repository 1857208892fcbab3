"""Test that the bytes of a small storage directory stay readable by later programs.

`_write` wrote the files in ``golden/storage``. A changed format needs a new format version, and
these files must stay readable.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

GOLDEN = Path(__file__).parent / "golden" / "storage"
KEY = uuid.UUID("0f0e0d0c-0b0a-0908-0706-050403020100")
OPTIONS = LogOptions(lambda: 1_700_000_000_000, segment_threshold=300)


def _records(first_id: int, count: int) -> RecordBatch:
    def record(n: int) -> Record:
        data = f"record {n} ".encode() * (n % 4)
        return Record(n, ReqId(n, -n, 1, 100 + n), -n, data, checksum(data))

    return RecordBatch.of(map(record, range(first_id, first_id + count)))


def _open(path: Path) -> StorageDirectory:
    return StorageDirectory(PosixDisk(path), KEY, 3, OPTIONS)


def _write(path: Path) -> None:
    directory = _open(path)
    directory.assign(1)
    directory.assign(2)
    log = directory.partition(1).log
    log.append(_records(0, 13))
    log.truncate(9)
    log.append(_records(10, 4))
    directory.set_available(2, False)
    directory.close()


def _bytes(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_encoder_writes_golden_bytes(tmp_path: Path) -> None:
    _write(tmp_path)
    assert _bytes(tmp_path) == _bytes(GOLDEN)


def test_decoder_reads_golden_bytes(tmp_path: Path) -> None:
    path = shutil.copytree(GOLDEN, tmp_path / "copy")
    directory = _open(path)
    assert directory.status() == {1: True, 2: False}
    assert directory.partition(1).records(0, 99).wire == _records(0, 14).wire
    directory.close()
    assert _bytes(path) == _bytes(GOLDEN)
