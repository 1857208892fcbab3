"""Damage whole storage directories in their files and names, then open and use them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz import values
from tests.fuzz.directory_runs import (
    KEY,
    PARTITIONS,
    Files,
    UsedDirectory,
    batch,
    disk_of,
    is_genuine,
    used_directory,
)
from tests.fuzz.disk_formats import forged_entry
from tests.fuzz.mutation import mutate
from tests.fuzz.target import hold, pack, unpack
from tests.support.inline_engine import InlineEngine
from waltz.protocol import admin, storage
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_format import CONTROL_FILE, ENTRY_BYTES, entry_offset
from waltz_storage.core.errors import DirectoryRefused, PartitionDamaged
from waltz_storage.core.partitions.storage_directory import StorageDirectory

_USED_DIRECTORIES = 200
_LINEAGE = 77
_ODD_NAMES = (
    "abc.seg", "0.seg", "0000000000000000005.seg", "0000000000000000000.idx", "9" * 30 + ".seg",
    "٣.seg", "0000000000000000000.seg.new", ".seg", "x.idx", "0000000000000000000",
)  # fmt: skip
_LIMIT = 1 << 30
_LARGEST_SESSION = (1 << 63) - 1

Refusals = dict[int, str]
Contents = dict[int, list[bytes | None]]
"""The records of each open partition; None for one that is refused as damaged."""


@dataclass(frozen=True, slots=True)
class _Case:
    used: UsedDirectory
    changes: dict[str, bytes | None]

    def files(self) -> Files:
        """Return the damaged directory."""
        merged: dict[str, bytes | None] = {**self.used.files, **self.changes}
        return {path: content for path, content in merged.items() if content is not None}

    def damaged(self) -> set[str]:
        """Return the paths that differ from the undamaged directory."""
        left = self.used.files
        return {path for path, content in self.changes.items() if left.get(path) != content}


class Directories:
    """The seed of a used directory, and its changed files: an input has only these."""

    name = "directories"
    modules = (
        "waltz_storage.core.log.log_opening",
        "waltz_storage.core.log.log_recovery",
        "waltz_storage.core.log.damaged_scan",
        "waltz_storage.core.log.segment_scan",
        "waltz_storage.core.control.control_file",
        "waltz_storage.core.control.control_format",
        "waltz_storage.core.log.log_segments",
        "waltz_storage.core.log.segment_files",
        "waltz_storage.core.log.segment_format",
        "waltz_storage.core.log.tail_segment",
        "waltz_storage.core.log.partition_log",
        "waltz_storage.core.partitions.storage_directory",
    )

    def make(self, random: Random) -> bytes:
        """Return an undamaged directory."""
        return _packed(random.randrange(_USED_DIRECTORIES), {})

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Damage one more file, with parts of files of any used directory."""
        seed, changes = _unpacked(data)
        case = _Case(used_directory(seed), changes)
        files = case.files()
        if not files:
            return self.make(random)
        path = random.choice(sorted(files))
        donor = _Case(used_directory(_unpacked(other)[0]), {}).files() | files
        changes[path] = _damaged(random, path, files, donor, case.used)
        if random.random() < 0.05:
            folder = random.choice(("", *(f"{p}/" for p in range(PARTITIONS))))
            changes[folder + random.choice(_ODD_NAMES)] = random.choice((b"", donor[path]))
        return _packed(seed, changes)

    def check(self, data: bytes) -> bool:
        """Open, read everything, open again, use; all records that are served must be genuine."""
        seed, changes = _unpacked(data)
        case = _Case(used_directory(seed), changes)
        disk = disk_of(case.files())
        try:
            engine = _opened(disk, case)
        except DirectoryRefused as refused:
            hold(str(refused), "a refusal is explained")
            return False
        refusals, contents = _look(engine)
        _check_known_clean(engine, case, contents)
        again = _opened(disk.restarted(), case)
        hold(_look(again) == (refusals, contents), "opening it again gives another result")
        _use(engine, case, contents)
        _make_again(engine, refusals)
        engine.directory.close()
        return not refusals


def _damaged(
    random: Random, path: str, files: Files, donor: Files, left: UsedDirectory
) -> bytes | None:
    """Return the damaged content of a file; None if it is removed."""
    content = files[path]
    other = donor[random.choice(sorted(donor))]
    kind = random.random()
    if path == CONTROL_FILE and kind < 0.4:
        start = entry_offset(random.randrange(PARTITIONS))
        entry = content[start : start + ENTRY_BYTES]
        if len(entry) == ENTRY_BYTES:
            return content[:start] + forged_entry(random, entry) + content[start + ENTRY_BYTES :]
    if path.endswith(".idx") and kind < 0.4:
        return _forged_index(random, content)
    if kind < 0.8:
        return mutate(random, content, other)
    if kind < 0.9:
        return random.choice(left.earlier).get(path)
    if kind < 0.95:
        return other
    return None


def _forged_index(random: Random, content: bytes) -> bytes:
    """Change an index entry: to another record, into the middle of one, or outside the file."""
    count = (len(content) - 128) // 8
    if count < 1:
        return content + values.int64(random).to_bytes(8, "big", signed=True)
    raw = bytearray(content)
    at, source = (128 + 8 * random.randrange(count) for _ in range(2))
    there = int.from_bytes(raw[source : source + 8], "big", signed=True)
    entry = random.choice((there, there + random.randrange(-9, 9), values.int64(random)))
    raw[at : at + 8] = (entry % (1 << 64)).to_bytes(8, "big")
    return bytes(raw)


def _opened(disk: MemoryDisk, case: _Case) -> InlineEngine:
    return InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, case.used.options))


def _look(engine: InlineEngine) -> tuple[Refusals, Contents]:
    """Return the refused partitions, and the readable records."""
    directory = engine.directory
    for partition, refused in directory.refused.items():
        hold(
            isinstance(refused, PartitionDamaged),
            f"partition {partition} is refused without its name",
        )
    contents: Contents = {}
    for partition, opened in directory.partitions.items():
        held: list[bytes | None] = []
        while len(held) <= opened.log.max_id:
            held += _read(engine, partition, len(held))
        contents[partition] = held
        beyond = engine.administer(admin.RecordListRequest(1, partition, len(held), 5))
        hold(not beyond.records.count, "there are records beyond the last one")
    hold(not engine.failures, f"the node would end: {engine.failures}")
    return {p: str(refused) for p, refused in directory.refused.items()}, contents


def _read(engine: InlineEngine, partition: int, first_id: int) -> list[bytes | None]:
    """Return the records of one answer from an id on, at least one."""
    for count in (_LIMIT, 1):
        answer = engine.administer(admin.RecordListRequest(1, partition, first_id, count))
        if isinstance(answer, admin.RecordListResponse):
            hold(answer.records.count, "an answer without a record of the log")
            records = list(answer.records)
            for transaction_id, found in enumerate(records, first_id):
                hold(found.transaction_id == transaction_id, "the ids are not consecutive")
                hold(is_genuine(found), f"record {transaction_id} was never appended like this")
            return [found.encode() for found in records]
        hold(_names_damage(answer), f"refused without a class: {answer}")
    return [None]


def _check_known_clean(engine: InlineEngine, case: _Case, contents: Contents) -> None:
    """Check that records up to the local mark are present, or that damage is reported.

    If several files of a partition are missing together, an older state of it may look whole; then
    no session may begin on it.
    """
    for partition, held in contents.items():
        info = engine.directory.info(partition)
        if len(held) > info.local_low_water_mark:
            continue
        files = {path for path in case.damaged() if path.startswith(f"{partition}/")}
        untouched = CONTROL_FILE not in case.damaged()
        hold(not untouched or len(files) > 1, "known clean records are missing without a report")
        session = max(info.session_id, 0) + 1
        request = storage.SetLowWaterMarkRequest(session, 1, partition, (1 << 63) - 1)
        answer = engine.ask(request)
        hold(
            isinstance(answer, storage.FailureResponse),
            "a session begins on a log that lost records",
        )


def _use(engine: InlineEngine, case: _Case, contents: Contents) -> None:
    """Truncate and append in every open partition; nothing else may change."""
    for partition, held in contents.items():
        if not engine.directory.info(partition).available:
            continue
        session = engine.directory.info(partition).session_id + 1
        if session > _LARGEST_SESSION:
            continue
        mark = engine.directory.info(partition).local_low_water_mark
        keep = max(-1, min(mark, len(held) - 1), len(held) - 1 - len(held) // 3)
        if keep < 0 <= engine.directory.info(partition).low_water_mark:
            continue
        answer = engine.ask(storage.TruncateRequest(session, 1, partition, keep))
        if isinstance(answer, storage.FailureResponse):
            hold(_names_damage(answer), f"refused without a class: {answer}")
            keep = len(held) - 1
        else:
            hold(answer.transaction_id == keep, "a truncation leaves another length")
        added = batch(keep + 1, 3, _LINEAGE)
        answer = engine.ask(storage.AppendRequest(session, 1, partition, added))
        hold(isinstance(answer, storage.SuccessResponse), f"an append is refused: {answer}")
        contents[partition] = held[: keep + 1] + [found.encode() for found in added]
    hold(not engine.failures, f"the node would end: {engine.failures}")
    for partition, held in _look(engine)[1].items():
        hold(_continues(contents[partition], held), f"partition {partition} changed by its use")


def _continues(before: list[bytes | None], after: list[bytes | None]) -> bool:
    """Return whether no record was lost.

    A read that was refused may succeed now: a wrong index entry does not affect a read that begins
    before it and does not end at other damage.
    """
    if len(before) != len(after):
        return False
    return all(was in (None, now) for was, now in zip(before, after, strict=True))


def _make_again(engine: InlineEngine, refusals: Refusals) -> None:
    """Follow the advice of a refusal: unassign the partition with its files, assign it again."""
    for partition in refusals:
        for assigned in (False, True):
            request = admin.PartitionAssignmentRequest(1, (partition,), assigned, True)
            answer = engine.administer(request)
            hold(isinstance(answer, admin.AdminSuccessResponse), f"not created again: {answer}")
        hold(engine.directory.partition(partition).log.max_id == -1, "it is not empty")
    hold(not engine.directory.refused, "the recreated partition is still refused")


def _names_damage(answer: Any) -> bool:
    return "is damaged" in (answer.failure.message or "")


def _packed(seed: int, changes: dict[str, bytes | None]) -> bytes:
    parts: list[tuple[str, Any]] = [(str(seed), b"")]
    return pack(parts + sorted(changes.items()))


def _unpacked(data: bytes) -> tuple[int, dict[str, bytes | None]]:
    (seed, _), *changes = unpack(data)
    return int(seed), dict(changes)
