"""Storage directories of the vectors: opened, read, continued, and recovered after damage.

Each test runs with both storage engines. After a clean stop, the engine ``wal`` leaves the same
files as the engine ``files``, and two more that Waltz 0.13.2 ignores.

Where a recorded case shows a defect of 0.13.2, one of the tables below names it, and the test
asserts what this implementation does instead.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.conftest import FOLDERS, OWN
from tests.vectors.damage import damaged_files
from tests.vectors.storage_engines import ENGINES, engine_of, without_files_of_log
from tests.vectors.storage_files import expand, files_of, write
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz_storage.core.control.control_format import CONTROL_FILE, ENTRY_BYTES, entry_offset
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.errors import DirectoryRefused, PartitionDamaged, RequestRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import FileHeader, decode_entries
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.config import EngineKind
from waltz_storage.shell.posix_disk import PosixDisk

Case = dict[str, Any]

_CREATED = slice(4, 12)
_ALL = 1 << 40

_OPENED_WITHOUT = {
    "length-negative": "a record with a negative length is invalid: a torn tail",
}
_PARTITION_REFUSED = {
    "old-segment-tail-unmarked": "a torn older segment would leave a hole in the log",
}
_START_REFUSED = {
    "ctl-short": "a short control file would lose all assignments",
}
_OPENED_DAMAGED = {
    "checkpoint-bad-at": (2000, "its place is certain, so the records after it are served, too"),
}
"""The damaged record, and why the partition is opened that 0.13.2 refuses."""
_READ_REFUSED = {
    "checkpoint-bad-before": "a damaged record before the scan start would be served",
    **_OPENED_DAMAGED,
}
_WRONG_CLUSTER = {"ctl-other-np", "ctl-other-key"}


START_REFUSED = "start refused"
PARTITION_REFUSED = "partition refused"
OPENED = "opened"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> EngineKind:
    """The storage engine that opens the directories."""
    chosen: EngineKind = request.param
    return chosen


@pytest.fixture(scope="session")
def root(vectors: Path, own: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with ``storage-dir``: as recorded, or made of storage-dir.json."""
    if not own:
        return vectors
    return expand(vectors / "storage-dir.json", tmp_path_factory.mktemp("own"))


def _options(opening: Case) -> LogOptions:
    return LogOptions(now_ms=lambda: 1, segment_threshold=opening["segmentSizeThreshold"])


def _open(path: Path, opening: Case, engine: EngineKind) -> StorageDirectory:
    key, count = uuid.UUID(opening["key"]), opening["numPartitions"]
    return StorageDirectory(PosixDisk(path), key, count, _options(opening), wal=engine_of(engine))


def _manifest(root: Path) -> Case:
    manifest: Case = json.loads((root / "storage-dir" / "manifest.json").read_text())
    return manifest


def _opening(manifest: Case, name: str) -> Case:
    control = manifest[name]["control"]
    threshold = 10_000_000 if name == "checkpoint" else manifest["segmentSizeThreshold"]
    return {
        "key": control["key"],
        "numPartitions": control["numPartitions"],
        "segmentSizeThreshold": threshold,
    }


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    for folder, _, files in os.walk(target):
        os.chmod(folder, 0o755)
        for file in files:
            os.chmod(Path(folder) / file, 0o644)
    return target


def _files(path: Path, *, mask_created: bool = False) -> dict[str, bytes]:
    found = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            raw = bytearray(file.read_bytes())
            if mask_created:
                raw[_CREATED] = bytes(8)
            found[str(file.relative_to(path))] = bytes(raw)
    return without_files_of_log(found)


def _expected_records(segments: list[Case]) -> Iterator[Case]:
    for segment in segments:
        yield from segment.get("records", ())


def _as_expected(record: Record, expected: Case) -> None:
    data = expected["data_hex"]
    assert record.transaction_id == expected["transactionId"]
    assert record.req_id == ReqId(*expected["reqId"])
    assert record.header == expected["header"]
    assert len(record.data) == expected["dataLength"]
    assert record.checksum == expected["dataChecksum"]
    if data.endswith("..."):
        assert record.data.hex().startswith(data[:-3])
    else:
        assert record.data.hex() == data


def _more(first_id: int, count: int) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, 3, n), n % 7, bytes([n % 251]) * (20 + n % 90), n)
        for n in range(first_id, first_id + count)
    )


@pytest.fixture(params=["fresh", "clean", "checkpoint"])
def undamaged(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> tuple[str, Path]:
    name: str = request.param
    return name, _copy(root / "storage-dir" / name, tmp_path / name)


def test_undamaged_directory_has_the_records_of_the_manifest(
    undamaged: tuple[str, Path], root: Path, engine: EngineKind
) -> None:
    name, path = undamaged
    manifest = _manifest(root)
    before = _files(path)
    directory = _open(path, _opening(manifest, name), engine)
    parts = manifest[name]["partitionDirs"]
    for key, partition in directory.partitions.items():
        segments = parts[str(key)]["segments"]
        total = sum(s.get("numRecords", len(s.get("records", ()))) for s in segments)
        records = list(partition.records(0, 1 << 30))
        assert len(records) == total == partition.log.next_id
        assert [r.transaction_id for r in records] == list(range(total))
        expected = list(_expected_records(segments))
        for found, wanted in zip(records, expected, strict=False):
            _as_expected(found, wanted)
        for wanted in expected:
            single = partition.records(wanted["transactionId"], 1)
            _as_expected(next(iter(single)), wanted)
    if name == "clean":
        for snapshot in manifest["snapshots"]:
            info = directory.info(snapshot["partitionId"])
            assert info.session_id == snapshot["sessionId"]
            assert info.low_water_mark == snapshot["lowWaterMark"]
            assert info.local_low_water_mark == snapshot["localLowWaterMark"]
            assert info.assigned == snapshot["isAssigned"]
            assert info.available == snapshot["isAvailable"]
        for wanted in manifest["maxTransactionIds"]:
            partition = directory.partition(wanted["partitionId"])
            assert partition.log.max_id == wanted["maxTransactionId"]
        for key, partition in directory.partitions.items():
            assert partition.log.checksum() == manifest["partitionChecksums"][str(key)]
    directory.close()
    after = _files(path)
    assert after.pop(FLUSHED_FILE), "opening a directory of 0.13.2 adds the flushed marks"
    assert after == before, "opening a clean directory changes nothing else"


def test_undamaged_directory_accepts_appends(
    undamaged: tuple[str, Path], root: Path, engine: EngineKind
) -> None:
    name, path = undamaged
    opening = _opening(_manifest(root), name)
    directory = _open(path, opening, engine)
    for key in range(directory.num_partitions):
        directory.assign(key)
    written = {}
    for key, partition in directory.partitions.items():
        first = partition.log.next_id
        for count in (1, 2, 1500 if name == "checkpoint" else 30):
            partition.log.append(_more(partition.log.next_id, count))
        written[key] = (first, partition.log.next_id, partition.log.checksum())
        # No clean stop: the next opening recovers.
        partition.log.release()
    reopened = _open(path, opening, engine)
    for key, (first, next_id, checksum) in written.items():
        partition = reopened.partition(key)
        assert partition.log.next_id == next_id
        assert (
            partition.log.read_batch(first, _ALL, _ALL).wire == _more(first, next_id - first).wire
        )
        assert partition.log.checksum() == checksum
    reopened.close()
    _check_layout(path, opening)


def test_partition_with_one_switch_on_is_read_from_the_flags(
    tmp_path: Path, engine: EngineKind
) -> None:
    """Only our own vectors have such a directory (spec/disk.md section 11)."""
    vectors = json.loads((OWN / "storage-dir.json").read_text())
    path = write(tmp_path, files_of(vectors, "one-switch"))
    opening = {name: vectors[name] for name in ("key", "numPartitions", "segmentSizeThreshold")}
    directory = _open(path, opening, engine)
    for wanted in vectors["switches"]:
        info = directory.info(wanted["partitionId"])
        assert (info.readable, info.writable) == (wanted["readable"], wanted["writable"])
        assert not info.available
    directory.close()


def _check_layout(path: Path, opening: Case) -> None:
    """Read the files by spec/disk.md sections 3 and 4, without the engine."""
    for data in path.glob("*/*.seg"):
        raw = data.read_bytes()
        index = data.with_suffix(".idx").read_bytes()
        header = FileHeader.decode(raw)
        assert data.stem == f"{header.first_id:019d}"
        assert header.first_id == FileHeader.decode(index).first_id
        assert (header.key, str(header.partition)) == (uuid.UUID(opening["key"]), data.parent.name)
        position, offsets = 128, []
        while position < len(raw):
            assert position <= opening["segmentSizeThreshold"]
            offsets.append(position)
            expected_id = header.first_id + len(offsets) - 1
            assert int.from_bytes(raw[position : position + 8], "big") == expected_id
            position += 40 + int.from_bytes(raw[position + 28 : position + 32], "big")
        assert position == len(raw)
        assert list(decode_entries(index[128:])) == offsets


def _damaged_cases(root: Path) -> list[Case]:
    cases: list[Case] = json.loads((root / "storage-dir" / "damaged.json").read_text())
    return cases


def _damage(case: Case, root: Path, target: Path) -> Path:
    """Make the damaged directory from its base, as the case describes it."""
    path = _copy(root / case["base"], target)
    found = damaged_files(_files(path), case)
    shutil.rmtree(path)
    return write(path, found)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each damaged directory of each folder of vectors."""
    if "case_number" in metafunc.fixturenames:
        cases = [
            pytest.param(name, number, id=f"{name}-{case}")
            for name, folder in FOLDERS.items()
            for number, case in enumerate(_names(folder))
        ]
        metafunc.parametrize(
            ("vectors", "case_number"), cases, indirect=["vectors"], scope="session"
        )


def _names(folder: Path) -> list[str]:
    if folder == OWN:
        cases = json.loads((folder / "storage-dir.json").read_text())["damaged"]
    else:
        cases = _damaged_cases(folder)
    return [case["name"] for case in cases]


def test_damaged_directory_is_recovered_or_refused(
    case_number: int, root: Path, own: bool, tmp_path: Path, engine: EngineKind
) -> None:
    case = _damaged_cases(root)[case_number]
    name, number = case["name"], case["partition"]
    path = _damage(case, root, tmp_path / "dir")
    before = _files(path)
    if "before" in case:
        assert before == _files(root / case["before"]), "the damage is made as recorded"
    _add_other_partitions(path, root / case["base"])
    before = _files(path)
    outcome = case["result"]["outcome"] if own else _outcome(name, case["result"]["opened"])
    if outcome == START_REFUSED:
        with pytest.raises(DirectoryRefused):
            _open(path, case["openWith"], engine)
        assert _files(path) == before, "a refused directory is not changed"
        return
    directory = _open(path, case["openWith"], engine)
    if outcome == PARTITION_REFUSED:
        _is_refused(directory, number)
    elif not own and name in _OPENED_DAMAGED:
        log = directory.partition(number).log
        (segment,) = _manifest(root)["checkpoint"]["partitionDirs"][str(number)]["segments"]
        assert log.next_id == segment["numRecords"], "the log keeps its length"
        assert log.damaged_at_opening == (_OPENED_DAMAGED[name][0],)
    elif not own and name in _OPENED_WITHOUT:
        assert directory.partition(number).log.max_id == _records_in(case, root) - 2
    else:
        _has_result(directory, name, number, case["result"])
    directory.close()
    if outcome == PARTITION_REFUSED:
        kept = {f: raw for f, raw in _files(path).items() if f.startswith(f"{number}/")}
        assert kept == {f: raw for f, raw in before.items() if f.startswith(f"{number}/")}
    elif own or name not in _OPENED_WITHOUT | _OPENED_DAMAGED:
        _same_control_entry(path, number, case["afterControlEntry"])
        if "after" in case:
            after = _files(root / case["after"], mask_created=True)
            found = _files(path, mask_created=True)
            # The recorded directory has only the files of this partition.
            assert {file: found[file] for file in found if file in after} == after
            assert not [f for f in found if f.startswith(f"{number}/") and f not in after]
        elif own:
            found = {f: raw for f, raw in _files(path).items() if f.startswith(f"{number}/")}
            sums = {f: {"size": len(raw), "crc32": zlib.crc32(raw)} for f, raw in found.items()}
            assert sums == case["afterFiles"]
        else:
            _same_sizes(path / str(number), case["afterPartition"]["segments"])


def _add_other_partitions(path: Path, base: Path) -> None:
    """Add the partitions that are not recorded: without files they would be damaged, too."""
    for each in base.iterdir():
        if each.is_dir() and not (path / each.name).exists():
            _copy(each, path / each.name)


def _outcome(name: str, opened: bool) -> str:
    """Return what happens here in a recorded case, by the result of 0.13.2 and the tables."""
    if name in _WRONG_CLUSTER or name in _START_REFUSED:
        assert opened is (name in _START_REFUSED)
        return START_REFUSED
    if name in _PARTITION_REFUSED or not (
        opened or name in _OPENED_WITHOUT or name in _OPENED_DAMAGED
    ):
        return PARTITION_REFUSED
    return OPENED


def _is_refused(directory: StorageDirectory, number: int) -> None:
    refusal = directory.refused[number]
    assert isinstance(refusal, PartitionDamaged)
    assert refusal.partition == number
    with pytest.raises(RequestRefused, match="is damaged"):
        directory.partition(number)
    assert set(directory.refused) == {number}, "no other partition is affected"


def _records_in(case: Case, root: Path) -> int:
    segments = _manifest(root)["clean"]["partitionDirs"][str(case["partition"])]["segments"]
    return sum(len(s["records"]) for s in segments)


def _has_result(directory: StorageDirectory, name: str, number: int, result: Case) -> None:
    info, partition = directory.info(number), directory.partition(number)
    assert info.session_id == result["sessionId"]
    assert info.low_water_mark == result["lowWaterMark"]
    assert info.local_low_water_mark == result["localLowWaterMark"]
    assert info.assigned is result["isAssigned"]
    assert info.available is result["isAvailable"]
    assert partition.log.max_id == result["maxTransactionId"]
    assert partition.log.checksum() == result["partitionChecksum"]
    readable = list(result.get("readableTransactionIds", range(result.get("numReadable", 0))))
    damaged = []
    for transaction_id in readable:
        try:
            assert partition.records(transaction_id, 1).count == 1
        except PartitionDamaged:
            damaged.append(transaction_id)
    assert len(damaged) == (name in _READ_REFUSED)
    for transaction_id in result["notReadable"]:
        assert partition.records(transaction_id, 1).count == 0


def _same_control_entry(path: Path, number: int, expected: Case) -> None:
    raw = (path / CONTROL_FILE).read_bytes()[entry_offset(number) :][:ENTRY_BYTES]
    assert int.from_bytes(raw[:4], "big") == expected["partitionId"]
    for slot, name in enumerate(("struct1", "struct2")):
        found, wanted = raw[4 + 36 * slot :][:36], expected[name]
        assert int.from_bytes(found[:8], "big", signed=True) == wanted["sessionId"]
        assert int.from_bytes(found[28:32], "big", signed=True) == wanted["sequenceNumber"]
        assert int.from_bytes(found[32:], "big", signed=True) == wanted["checksum"]


def _same_sizes(path: Path, segments: list[Case]) -> None:
    expected = {s["segFile"]: s["segSize"] for s in segments}
    expected |= {s["idxFile"]: s["idxSize"] for s in segments}
    assert {f.name: f.stat().st_size for f in path.iterdir()} == expected
