"""Files behind a write-ahead log on a disk in memory, with a model of what must be in them.

`LoggedWorld` makes random transactions and checkpoints, and knows the state of all files after each
transaction. Its `crashes` are disks after a loss of power, each with the states that are right.

A transaction may have *direct data*: bytes that are written to their file at once, while the log
has only a check of them. After a crash, direct data of an incomplete transaction may follow the
content that a file must have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.log.segment_format import DATA_SUFFIX, INDEX_SUFFIX
from waltz_storage.core.wal.catalogue import FileKind, FileName, present, removed, write_row
from waltz_storage.core.wal.checksums import DEFAULT
from waltz_storage.core.wal.logged_files import LoggedFiles
from waltz_storage.core.wal.operations import Address, Check, Move, Operation, WriteData, Zero
from waltz_storage.core.wal.region_files import Flush, RegionFiles, create_catalogue
from waltz_storage.core.wal.wal_file import WAL_FILE, create_wal
from waltz_storage.core.wal.wal_header import HEADER_BLOCKS, WalHeader
from waltz_storage.core.wal.wal_replay import Progress, ReplayResult, replay_log

KEY = uuid.UUID(int=41)
MARKS = FileName(FileKind.FLUSHED_MARKS)
FILES = [
    FileName(kind, partition, first_id)
    for kind in (FileKind.DATA, FileKind.INDEX)
    for partition in (0, 1)
    for first_id in (0, 1)
]
POOL = [*FILES, MARKS]
KINDS = ("append", "append", "append", "write", "zero", "move", "cut", "remove")
"""The operations on an existing file to choose from; appends are more frequent."""

State = dict[FileName, bytes]
"""The content of each file that exists."""


def patched(content: bytes, offset: int, data: bytes) -> bytes:
    """Return ``content`` with ``data`` at ``offset``, and zeros between the two."""
    if not data:
        return content
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def state_on(disk: MemoryDisk) -> State:
    """Return the files that a reader finds on a disk."""
    found: State = {}
    if disk.exists(FLUSHED_FILE):
        found[MARKS] = disk.content(FLUSHED_FILE)
    for directory in disk.names(""):
        for name in disk.names(directory) if directory.isdecimal() else ():
            stem, _, suffix = name.partition(".")
            kind = {DATA_SUFFIX: FileKind.DATA, INDEX_SUFFIX: FileKind.INDEX}[f".{suffix}"]
            file = FileName(kind, int(directory), int(stem))
            found[file] = disk.content(f"{directory}/{name}")
    return found


@dataclass(frozen=True, slots=True)
class Crash:
    """A disk after a crash. ``states`` are the states that it may be in after a replay.

    If a transaction with direct data was under way, ``direct`` is the file of these data, which may
    have more bytes at its end than in ``states``; otherwise None.
    """

    disk: MemoryDisk
    states: tuple[State, ...]
    direct: FileName | None

    def is_right(self, found: State) -> bool:
        """Return whether a replay may have led to the state ``found``."""
        return any(self._same(found, state) for state in self.states)

    def without_dropped_data(self, found: State) -> State:
        """Return ``found`` without the direct data of a transaction that the replay has dropped.

        No operation in the log covers these bytes, so the next crash may lose them.
        """
        if self.direct is None or self.direct not in found:
            return found
        # If the transaction has nothing but direct data, the bytes do not show whether it was
        # dropped. Both states are then right, and the first one is that without the transaction.
        wanted = next(state for state in self.states if self._same(found, state))
        return found | {self.direct: found[self.direct][: len(wanted[self.direct])]}

    def _same(self, found: State, wanted: State) -> bool:
        """Whether ``found`` is the state ``wanted``, apart from further bytes in ``direct``."""
        return found.keys() == wanted.keys() and all(
            found[file] == content or (file == self.direct and found[file].startswith(content))
            for file, content in wanted.items()
        )


@dataclass(slots=True)
class Change:
    """A transaction that is being made: its operations, and the state after it.

    ``direct`` has the data to write directly, or to log if that is not allowed.
    """

    state: State
    operations: list[Operation] = field(default_factory=list)
    direct: tuple[FileName, WriteData] | None = None
    regions: dict[FileName, int] = field(default_factory=dict)
    """The regions of files that the transaction creates."""
    no_source: set[FileName] = field(default_factory=set)
    """Files from which this transaction must not move bytes, because it writes their rows."""

    def all_logged(self) -> list[Operation]:
        """Return the operations, with a WriteData for the direct data."""
        return [*self.operations, *((self.direct[1],) if self.direct else ())]


class LoggedWorld:
    """Files behind a log, on ``disk``."""

    def __init__(self, disk: MemoryDisk, random: Random) -> None:
        """Open the log on ``disk``; the state of the files is what the replay leaves."""
        self.disk = disk
        self.random = random
        self.progress: list[Progress] = []
        files = RegionFiles(disk, disk)
        self.damaged: list[Check] = []
        opened = replay_log(disk.open(WAL_FILE), files, self.progress.append, self.damaged.extend)
        self.replayed = opened.result
        self.logged = LoggedFiles(opened.writer, files, opened.checksum, most_open=3)
        self.state = state_on(disk)
        self.crashes: list[Crash] = []
        self._under_way: Change | None = None
        """The transaction that is being written, None if the last one is acknowledged."""
        self._flushes: list[Flush] | None = None
        """The flushes of the checkpoint that has begun."""

    @classmethod
    def create(cls, random: Random, blocks: int = 12) -> LoggedWorld:
        """Return an empty world whose log has this many ``blocks``."""
        disk = MemoryDisk()
        header = WalHeader.new(KEY, HEADER_BLOCKS + blocks, DEFAULT)
        create_catalogue(disk, [], header.checkpoint)
        create_wal(disk, header)
        return cls(disk, random)

    def record_crashes(self, take: Callable[[MemoryDisk], list[MemoryDisk]]) -> None:
        """After each change of the disk, add the disks that ``take`` returns to `crashes`."""

        def changed() -> None:
            states = [self.state]
            direct = None
            if self._under_way is not None:
                states.append(self._under_way.state)
                direct = self._under_way.direct[0] if self._under_way.direct else None
            self.crashes += [Crash(disk, tuple(states), direct) for disk in take(self.disk)]

        self.disk.observer = changed

    def step(self) -> None:
        """Make a transaction, or a part of a checkpoint."""
        choice = self.random.random()
        if choice < 0.2:
            if self._flushes is None:
                self.begin_checkpoint()
            else:
                self.finish_checkpoint()
        else:
            self.commit(self.change())

    def change(self) -> Change:
        """Return a random transaction."""
        change = Change(dict(self.state))
        for _ in range(self.random.randrange(5)):
            self._add_operation(change)
        present_files = [f for f in change.state if f in FILES and f not in self._touched(change)]
        if present_files and self.random.random() < 0.3:
            file = self.random.choice(present_files)
            end = len(change.state[file])
            data = self.random.randbytes(self.random.randrange(100, 3000))
            write = WriteData(Address(self._region(change, file), end), data)
            change.direct = (file, write)
            change.state[file] += write.data
        return change

    def commit(self, change: Change) -> None:
        """Write a transaction, flush it and apply it; wait for checkpoints if necessary."""
        logged = self.logged
        if not logged.can_write(change.all_logged()):
            self.finish_checkpoint()
            if not logged.can_write(change.all_logged()):
                logged.checkpoint()
            assert logged.can_write(change.all_logged())
        self._under_way = change
        operations = list(change.operations)
        if change.direct is not None:
            _, write = change.direct
            operations.append(logged.write_directly(write.address, write.data) or write)
        logged.write(operations)
        flushes = logged.flushes()
        self.random.shuffle(flushes)
        for flush in flushes:
            flush()
        # The transaction is acknowledged here: no crash may lose it.
        self.state, self._under_way = change.state, None
        logged.complete()

    def begin_checkpoint(self) -> None:
        """Begin a checkpoint, whose flushes come later."""
        if self.logged.header_pending:
            self.logged.flush_header()
        self._flushes = self.logged.begin_checkpoint()
        self.random.shuffle(self._flushes)

    def finish_checkpoint(self) -> None:
        """Finish the checkpoint that has begun, if there is one, with its header."""
        if self._flushes is not None:
            for flush in self._flushes:
                flush()
            self._flushes = None
            self.logged.write_position()()
            self.logged.end_checkpoint()
        if self.logged.header_pending:
            self.logged.flush_header()

    def read_state(self) -> State:
        """Return the state that reads see now, before a checkpoint writes it to the files."""
        files = self.logged.files
        found = {}
        for file, content in self.state.items():
            region = files.catalogue.region_of(file)
            assert region is not None
            found[file] = files.read(Address(region, 0), len(content))
        return found

    def _touched(self, change: Change) -> set[FileName]:
        """Return the files that a transaction changes or moves from."""
        by_region = {self._region(change, file): file for file in change.state}
        touched = set(change.no_source)
        for operation in change.operations:
            touched.add(by_region.get(operation.address.region, MARKS))
            if isinstance(operation, Move):
                touched.add(by_region.get(operation.source.region, MARKS))
        return touched

    def _region(self, change: Change, file: FileName) -> int:
        region = change.regions.get(file, self.logged.files.catalogue.region_of(file))
        assert region is not None
        return region

    def _data(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randrange(1, most))

    def _add_operation(self, change: Change) -> None:
        random, state = self.random, change.state
        missing = [file for file in POOL if file not in state]
        if missing and (not state or random.random() < 0.25):
            self._create(change, random.choice(missing))
            return
        file = random.choice(sorted(state, key=POOL.index))
        region, content = self._region(change, file), state[file]
        operation: Operation
        match random.choice(KINDS):
            case "append":
                operation = WriteData(Address(region, len(content)), self._data(2500))
                state[file] = content + operation.data
            case "write":
                offset = random.randrange(len(content) + 1)
                operation = WriteData(Address(region, offset), self._data(100))
                state[file] = patched(content, offset, operation.data)
            case "zero":
                offset, length = random.randrange(len(content) + 1), random.randrange(200)
                operation = Zero(Address(region, offset), length)
                state[file] = patched(content, offset, bytes(length))
            case "move":
                operation = self._move(change, file)
                self._apply_move(change, file, operation)
            case "cut":
                length = random.randrange(len(content) + 1)
                operation = write_row(region, present(file, length))
                state[file] = content[:length]
                change.no_source.add(file)
            case _:
                operation = write_row(region, removed(file))
                del state[file]
                change.regions.pop(file, None)
                change.no_source.add(file)
        change.operations.append(operation)

    def _create(self, change: Change, file: FileName) -> None:
        region = self.logged.files.catalogue.new_region()
        change.operations.append(write_row(region, present(file)))
        change.regions[file] = region
        change.state[file] = b""
        change.no_source.add(file)

    def _move(self, change: Change, file: FileName) -> Move | Zero:
        """Return a random Move to ``file``, or a Zero if there is nothing to move."""
        random, state = self.random, change.state
        offset = random.randrange(len(state[file]) + 1)
        address = Address(self._region(change, file), offset)
        sources = [
            f for f in sorted(state, key=POOL.index) if state[f] and f not in change.no_source
        ]
        if not sources:
            return Zero(address, 7)
        source = random.choice(sources)
        start = random.randrange(len(state[source]))
        length = random.randrange(min(200, len(state[source]) - start) + 1)
        return Move(address, Address(self._region(change, source), start), length)

    def _apply_move(self, change: Change, file: FileName, operation: Move | Zero) -> None:
        content = change.state[file]
        if isinstance(operation, Zero):
            moved = bytes(operation.length)
        else:
            by_region = {self._region(change, each): each for each in change.state}
            start = operation.source.offset
            moved = change.state[by_region[operation.source.region]][
                start : start + operation.length
            ]
        change.state[file] = patched(content, operation.address.offset, moved)


def replayed(crash: Crash, random: Random) -> tuple[LoggedWorld, ReplayResult]:
    """Open the log on a crashed disk, and check the state of its files."""
    world = LoggedWorld(crash.disk, random)
    assert world.damaged == []
    assert crash.is_right(world.state)
    return world, world.replayed
