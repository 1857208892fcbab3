"""Generate storage-dir.json: storage directories by field, and the results of damages."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.inline_engine import InlineEngine
from tests.vectors.damage import damaged_files
from tests.vectors.generate.control_file import entry_fields
from tests.vectors.generate.damages import Damage, damages
from tests.vectors.generate.storage_ops import CREATED_MS
from tests.vectors.generate.wire_examples import KEY
from tests.vectors.storage_files import (
    CONTROL,
    Files,
    made_segment,
    pieces_of,
    write,
)
from waltz.protocol import Record, RecordBatch, ReqId, checksum, storage
from waltz.protocol.admin import Switch
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

_PARTITIONS = 4
_THRESHOLD = 300
_LARGE_THRESHOLD = 10_000_000
_MADE_RECORDS = 2100


def storage_dir() -> dict[str, Any]:
    """Return storage-dir.json."""
    fresh, clean, checkpoint = _made(_nothing), _made(_written), _checkpoint()
    directories = {"fresh": fresh, "clean": clean, "checkpoint": checkpoint}
    listed: dict[str, Any] = {
        name: {"files": {file: pieces_of(file, raw) for file, raw in files.items()}}
        for name, files in (("fresh", fresh), ("clean", clean), ("one-switch", _made(_switched)))
    }
    listed["checkpoint"] = {
        "files": {CONTROL: pieces_of(CONTROL, checkpoint[CONTROL])},
        "made": {
            "creationTime": CREATED_MS,
            "records": _MADE_RECORDS,
            "crc32": {name: zlib.crc32(raw) for name, raw in checkpoint.items() if name != CONTROL},
        },
    }
    return {
        "key": KEY,
        "numPartitions": _PARTITIONS,
        "segmentSizeThreshold": _THRESHOLD,
        **_state(clean),
        "switches": [
            {"partitionId": 0, "readable": False, "writable": True},
            {"partitionId": 1, "readable": True, "writable": False},
        ],
        "directories": listed,
        "damaged": [_damaged(damage, directories) for damage in damages(clean)],
    }


def _open(path: Path, opening: dict[str, Any]) -> StorageDirectory:
    options = LogOptions(lambda: CREATED_MS, segment_threshold=opening["segmentSizeThreshold"])
    disk = PosixDisk(path)
    return StorageDirectory(disk, UUID(opening["key"]), opening["numPartitions"], options)


def _opening(directory: str) -> dict[str, Any]:
    made = directory == "checkpoint"
    return {
        "key": KEY,
        "numPartitions": 1 if made else _PARTITIONS,
        "segmentSizeThreshold": _LARGE_THRESHOLD if made else _THRESHOLD,
    }


def _read(path: Path) -> Files:
    """Return the files that Waltz 0.13.2 has, too."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != FLUSHED_FILE)
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def _made(fill: Callable[[InlineEngine], None], directory: str = "clean") -> Files:
    with tempfile.TemporaryDirectory() as folder:
        opened = _open(Path(folder), _opening(directory))
        fill(InlineEngine(opened))
        opened.close()
        return _read(Path(folder))


def _nothing(node: InlineEngine) -> None:
    """Assign no partition."""


def _switched(node: InlineEngine) -> None:
    """Assign partition 0, which is only writable, and 1, which is only readable."""
    for partition, off in ((0, Switch.READ), (1, Switch.WRITE)):
        node.directory.assign(partition)
        node.directory.set_switch(partition, off, False)


def _written(node: InlineEngine) -> None:
    """Fill four partitions.

    0: marks and three segments; 1: one segment, no marks, not available; 2: a session without
    records; 3: two segments without marks.
    """
    for partition in range(_PARTITIONS):
        node.directory.assign(partition)
    _session(node, 0, 1, -1)
    _append(node, 0, 1, 0, 6)
    _session(node, 0, 3, 5)
    _append(node, 0, 3, 6, 2)
    _append(node, 1, 0, 0, 4)
    node.directory.set_available(1, False)
    _session(node, 2, 2, -1)
    _session(node, 3, 2, -1)
    _append(node, 3, 2, 0, 4)


def _session(node: InlineEngine, partition: int, session: int, mark: int) -> None:
    request = storage.SetLowWaterMarkRequest(session, 0, partition, mark, False)
    assert isinstance(node.ask(request), storage.SuccessResponse)


def _append(node: InlineEngine, partition: int, session: int, first: int, count: int) -> None:
    for number in range(first, first + count):
        data = (
            b"entry %d" % number
            if partition == 1
            else b"partition %d, entry %d" % (partition, number)
        )
        record = Record(number, ReqId(7, 3, partition, number), 5, data, checksum(data))
        batch = RecordBatch.of([record])
        answer = node.ask(storage.AppendRequest(session, 0, partition, batch, False))
        assert isinstance(answer, storage.SuccessResponse), answer


def _checkpoint() -> Files:
    def fill(node: InlineEngine) -> None:
        node.directory.assign(0)
        _session(node, 0, 1, -1)
        for first in range(0, _MADE_RECORDS, 100):
            records = [_made_record(number) for number in range(first, first + 100)]
            request = storage.AppendRequest(1, 0, 0, RecordBatch.of(records), False)
            assert isinstance(node.ask(request), storage.SuccessResponse)

    files = _made(fill, "checkpoint")
    expected = made_segment(KEY, CREATED_MS, _MADE_RECORDS)
    assert {name: files[name] for name in expected} == expected
    return files


def _made_record(number: int) -> Record:
    data = number.to_bytes(8, "big")
    return Record(number, ReqId(7, 1, 0, number), 0, data, checksum(data))


def _state(clean: Files) -> dict[str, Any]:
    """Return marks, last ids and checksums of the partitions of ``clean``."""
    with tempfile.TemporaryDirectory() as folder:
        directory = _open(write(Path(folder), clean), _opening("clean"))
        infos = [(number, directory.info(number)) for number in range(_PARTITIONS)]
        state = {
            "snapshots": [
                {
                    "partitionId": number,
                    "sessionId": info.session_id,
                    "lowWaterMark": info.low_water_mark,
                    "localLowWaterMark": info.local_low_water_mark,
                    "isAssigned": info.assigned,
                    "isAvailable": info.available,
                }
                for number, info in infos
            ],
            "maxTransactionIds": [
                {"partitionId": number, "maxTransactionId": partition.log.max_id}
                for number, partition in directory.partitions.items()
            ],
            "partitionChecksums": {
                str(number): partition.log.checksum()
                for number, partition in directory.partitions.items()
            },
        }
        directory.close()
        return state


def _damaged(damage: Damage, directories: dict[str, Files]) -> dict[str, Any]:
    opening = _opening(damage.directory) | damage.opening
    case = {
        "name": damage.name,
        "damage": damage.text,
        "base": f"storage-dir/{damage.directory}",
        "onlyPartitionDirKept": damage.partition,
        "partition": damage.partition,
        "openWith": opening,
        "ops": damage.ops,
    }
    files = damaged_files(directories[damage.directory], case)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), files)
        try:
            directory = _open(path, opening)
        except DirectoryRefused:
            return case | {"result": {"outcome": "start refused"}}
        if damage.partition in directory.refused:
            directory.close()
            return case | {"result": {"outcome": "partition refused"}}
        result = _result(directory, damage.partition)
        directory.close()
        after = _read(path)
    entry = entry_fields(after[CONTROL], damage.partition)
    return case | {
        "result": result,
        "afterFiles": _sums(after, damage.partition),
        "afterControlEntry": entry,
    }


def _result(directory: StorageDirectory, number: int) -> dict[str, Any]:
    info, partition = directory.info(number), directory.partition(number)
    return {
        "outcome": "opened",
        "sessionId": info.session_id,
        "lowWaterMark": info.low_water_mark,
        "localLowWaterMark": info.local_low_water_mark,
        "isAssigned": info.assigned,
        "isAvailable": info.available,
        "maxTransactionId": partition.log.max_id,
        "numReadable": partition.log.max_id + 1,
        "notReadable": [partition.log.max_id + 1],
        "partitionChecksum": partition.log.checksum(),
    }


def _sums(files: Files, partition: int) -> dict[str, dict[str, int]]:
    """Return size and CRC-32 of each file of one partition."""
    return {
        name: {"size": len(raw), "crc32": zlib.crc32(raw)}
        for name, raw in files.items()
        if name.startswith(f"{partition}/")
    }
