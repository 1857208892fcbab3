"""A storage: the real node on a disk that loses and tears writes, with checks of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from typing_extensions import override

from tests.sim.alarm import Alarm
from tests.sim.delayed_engine import DelayedEngine
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.replica import Replica
from waltz.protocol import STORAGE
from waltz.protocol import storage as st
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz.testing.engine import EventLoopEngine
from waltz.testing.nodes import InProcessStorage, SharedEnvironment
from waltz_storage.core.errors import DiskFailed, RequestRefused
from waltz_storage.core.log.partition_log import OUT_OF_ORDER
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.shell.config import EngineKind, StorageConfig
from waltz_storage.shell.engine_thread import Mailbox
from waltz_storage.shell.node import StorageEnvironment, StorageNode

RESTART_SECONDS = 0.2
CRASHES_AGAIN = 0.1
"""Share of the starts in which power is lost again."""

_MARKS_FLUSHED = 0.2
"""Share of the rounds after which the flushed marks are made durable."""

_ALLOCATED_BYTES = 2048
_DIRECT_BYTES = 700
"""With the engine wal, some appends are written directly, and most are copied to the log."""


@dataclass(frozen=True, slots=True)
class SimEngine:
    """The storage engine of a run, and the size of its write-ahead log."""

    kind: EngineKind
    wal_bytes: int

    @classmethod
    def of_seed(cls, seed: int) -> SimEngine:
        """Return the engine of a seed: the engine wal for every second one.

        The log is small, so that it is full several times in a run: there is no thread, and a
        checkpoint is made only when the log is full, and at a clean stop.
        """
        kind = EngineKind.WAL if seed % 2 else EngineKind.FILES
        return cls(kind, (12 + 4 * (seed // 2 % 8)) * BLOCK_BYTES)


class PowerLost(BaseException):
    """Loss of power in the middle of an operation. No error handler may catch it."""


class _Process(InProcessStorage):
    """The processes of a storage, one after the other."""

    def __init__(self, number: int, world: SharedEnvironment, storage: SimStorage) -> None:
        super().__init__(number, world)
        self.engine: DelayedEngine | None = None
        self._storage = storage

    @override
    def new_node(self, config: StorageConfig, environment: StorageEnvironment) -> StorageNode:
        storage = self._storage
        return StorageNode(
            config.model_copy(
                update={
                    "segment_threshold": storage.segment_bytes,
                    "engine": storage.engine.kind.value,
                    "wal_bytes": storage.engine.wal_bytes,
                }
            ),
            STORAGE.limited_to(*range(storage.version + 1)),
            environment=replace(
                environment,
                now_ms=lambda: 0,
                allocate_bytes=_ALLOCATED_BYTES,
                direct_bytes=_DIRECT_BYTES,
            ),
        )

    @override
    def _new_engine(
        self,
        directory: StorageDirectory,
        mailbox: Mailbox,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> EventLoopEngine:
        self._storage.assign_missing(directory)
        self.engine = DelayedEngine(
            directory, mailbox, fail, clock, self._storage, self._storage.history
        )
        return self.engine


class SimStorage:
    """A machine with its disk, on which a process is killed and started again."""

    def __init__(
        self,
        number: int,
        world: SharedEnvironment,
        environment: tuple[LoopClock, Random, History, Alarm],
        segment_bytes: int,
        engine: SimEngine,
        partitions: int,
    ) -> None:
        self.clock, self._random, self.history, self._alarm = environment
        self._process = _Process(number, world, self)
        self.name = self._process.address
        self.host = self._process.host
        self.segment_bytes = segment_bytes
        self.engine = engine
        self.up = False
        self.version = max(STORAGE.versions)
        """The newest protocol version for servers that its program supports."""
        self.replicas = tuple(
            Replica(self.name, p, self._directory, self._without_faults) for p in range(partitions)
        )
        self._world = world
        self._starting = False
        self._incarnation = 0
        self._healed = False
        self._upgraded = False
        self._refused: set[object] = set()
        """Connections on which an append was refused."""
        self._snapshot: tuple[MemoryDisk, list[int]] | None = None
        self._new_disk = True
        """Whether the disk does not have all partitions yet that an administrator assigns first."""
        self.starts_switched_off = False
        """Whether partitions of a new disk are switched off: no server uses them."""

    @property
    def disk(self) -> MemoryDisk:
        """The disk of the present or the next process."""
        return self._process.disk

    # ---- process

    def start(self) -> None:
        """Start a process, which opens the directory, with recovery."""
        if self.up or self._starting:
            return
        self._starting = True
        self.disk.failing_flush = 0
        if not self._healed and self._random.random() < CRASHES_AGAIN:
            self.lose_power_soon()
        newest = max(STORAGE.versions)
        version = self._random.choice((*STORAGE.versions, newest))
        self.version = newest if self._upgraded else version
        self._incarnation += 1
        self._alarm.spawn(self._start())

    def start_later(self) -> None:
        """Start after a while."""
        self.clock.after(self._random.expovariate(1 / RESTART_SECONDS), self.start)

    def heal(self) -> None:
        """Start with free space and without further faults."""
        self._healed = True
        self.disk.space = UNLIMITED
        self.disk.failing_flush = 0
        self.disk.observer = None
        self.start()

    def crash(self, *, power: bool) -> None:
        """End at once: only the process, or the machine, which loses unflushed writes."""
        if self.up:
            name = "storage machine lost power" if power else "storage killed"
            self.history.fault(self.name, name)
            self._end(power)

    def _upgrade(self) -> None:
        """Replace the process by one of the newest version."""
        self.history.note(self.name, "upgraded, because it refuses to empty its log")
        self._upgraded = True
        self._end(power=False)
        self.start()

    async def _start(self) -> None:
        try:
            await self._process.start()
            self.up = True
            self.history.counters[f"storage: started with the engine {self.engine.kind}"] += 1
            for replica in self.replicas:
                replica.started()
                self.history.note(self.name, f"started, {replica.partition}: {replica.state()}")
        except (DiskFailed, PowerLost) as failure:
            self._fail(failure)
        finally:
            self._starting = False

    def _end(self, power: bool) -> None:
        self.up = False
        self._incarnation += 1
        self._refused.clear()
        process = self._process
        self._world.network.take_down(self.host)
        if process.engine is not None:
            process.engine.abandon()
        disk = process.disk
        process.disk = disk.crashed(self._random) if power else disk.restarted()
        process.node = None

    def _fail(self, failure: BaseException) -> None:
        if isinstance(failure, PowerLost):
            self.history.fault(self.name, "power lost in the middle of a change")
            self._end(power=True)
        else:
            self.history.fault(self.name, "flush failed")
            self._end(power=self._random.random() < 0.5)
        self.start_later()

    def assign_missing(self, directory: StorageDirectory) -> None:
        """Assign the partitions that a new disk does not have, as an administrator does."""
        complete = True
        for replica in self.replicas if self._new_disk else ():
            try:
                if not directory.info(replica.partition).assigned:
                    directory.assign(replica.partition)
                    if self.starts_switched_off:
                        directory.set_available(replica.partition, False)
            except RequestRefused as refused:
                self.history.note(self.name, f"cannot take {replica.partition}: {refused}")
                complete = False
        self._new_disk = self._new_disk and not complete
        for partition, reason in directory.refused.items():
            self.history.counters["storage: partition refused at start"] += 1
            self.history.note(self.name, f"refuses partition {partition}: {reason}")

    def _directory(self) -> StorageDirectory | None:
        node = self._process.node
        return node.directory if node is not None else None

    @contextmanager
    def _without_faults(self) -> Iterator[None]:
        """Let the disk lose no power and have space."""
        disk = self.disk
        observer, space = disk.observer, disk.space
        disk.observer, disk.space = None, UNLIMITED
        try:
            yield
        finally:
            disk.observer, disk.space = observer, space

    # ---- faults

    def wipe(self) -> None:
        """Lose the disk; only while down."""
        assert not self.up
        self.history.fault(self.name, "disk emptied")
        self._process.disk = MemoryDisk()
        self._new_disk = True
        for replica in self.replicas:
            replica.reset(-1)

    def take_snapshot(self) -> None:
        """Take a snapshot of the disk; only while down."""
        assert not self.up
        self._snapshot = (self.disk.restarted(), [replica.bound for replica in self.replicas])

    def restore_snapshot(self) -> None:
        """Restore the snapshot of the disk; only while down."""
        assert not self.up
        assert self._snapshot is not None
        self.history.fault(self.name, "old snapshot restored")
        disk, bounds = self._snapshot
        self._process.disk = disk.restarted()
        for replica, bound in zip(self.replicas, bounds, strict=True):
            replica.reset(bound)

    def fail_a_flush(self) -> None:
        """Make one of the next flushes fail."""
        self.disk.failing_flush = self._random.randint(1, 4)

    def lose_power_soon(self) -> None:
        """Lose power after one of the next changes of the disk, in the middle of an operation."""
        disk, left = self.disk, self._random.randint(1, 12)

        def changed() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                disk.observer = None
                raise PowerLost

        disk.observer = changed

    def fill(self, seconds: float) -> None:
        """Leave almost no space on the disk for a while."""
        self.history.fault(self.name, "disk full", f" for {seconds:.3f} s")
        disk = self.disk
        disk.space = UNLIMITED - disk.left() + self._random.choice((0, 0, 300))
        self.clock.after(seconds, lambda: setattr(disk, "space", UNLIMITED))

    def rot(self) -> None:
        """Flip a bit of a file, unnoticed by the program."""
        folder = str(self._random.choice(self.replicas).partition)
        names = sorted(self.disk.names(folder))
        if not names:
            return
        path = f"{folder}/{self._random.choice(names)}"
        self.rot_at(path, self._random.randrange(len(self.disk.content(path))))

    def rot_at(self, path: str, place: int) -> None:
        """Flip a bit of the byte at ``place``, unnoticed by the program."""
        flipped = self.disk.content(path)[place] ^ 1 << self._random.randrange(8)
        self.history.fault(self.name, "bit flipped", f" in {path} at {place}")
        self.disk.damage(path, place, bytes((flipped,)))

    # ---- requests (`Machine`)

    def flushes_marks(self) -> bool:
        """Whether the flushed marks are made durable after this round."""
        return self._random.random() < _MARKS_FLUSHED

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do ``work`` after about ``seconds``, unless the process has ended by then."""
        seconds *= 0.5 + self._random.random()
        self.clock.after(seconds, self._guarded, self._incarnation, work)

    def arrived(self, request: Any) -> None:
        """Note a request that has arrived."""
        self.history.detail(self.name, "gets {}", request)
        if 0 <= request.partition < len(self.replicas):
            self.replicas[request.partition].record_request(request)

    def answers(self, connection: object, request: Any, answer: Any) -> None:
        """Check an answer that is about to be sent on ``connection``."""
        self.history.detail(self.name, "answers {}", answer)
        if isinstance(answer, st.FailureResponse):
            self._check_refusal(connection, request, answer.failure.message or "")
        elif isinstance(request, st.AppendRequest):
            self.replicas[request.partition].appended(request)
        elif isinstance(request, st.TruncateRequest | st.TruncateBelowMarkRequest):
            self.replicas[request.partition].cut(answer.transaction_id)
        elif isinstance(request, st.SetLowWaterMarkRequest):
            self.replicas[request.partition].marked(request.low_water_mark)

    def _check_refusal(self, connection: object, request: Any, why: str) -> None:
        """Check a refusal: a server must not send requests that are refused for these reasons."""
        if isinstance(request, st.SetLowWaterMarkRequest) and "max transaction id" in why:
            mark = request.low_water_mark
            raise Violation(Guarantee.SAME, f"{self.name} is to begin a session at {mark}: {why}")
        if isinstance(request, st.AppendRequest):
            # Only appends sent after a refused append may be out of order.
            if OUT_OF_ORDER in why and connection not in self._refused:
                first_id = request.records.first_id()
                raise Violation(Guarantee.SAME, f"{self.name} is to append {first_id}: {why}")
            self._refused.add(connection)
        old = self.version < st.TRUNCATE_BELOW_MARK_SINCE
        cut = isinstance(request, st.TruncateRequest) and "are committed" in why
        if self._healed and old and cut:
            # With an old version the server cannot name the mark, so the storage refuses to empty
            # a log that has one (docs/compatibility.md). Without an upgrade it refuses for ever.
            self.clock.after(0, self._guarded, self._incarnation, self._upgrade)

    def _guarded(self, incarnation: int, work: Callable[[], None]) -> None:
        """Run ``work`` in this incarnation; a failed flush or a loss of power ends the process."""
        if incarnation != self._incarnation:
            return
        try:
            work()
        except (DiskFailed, PowerLost) as failure:
            self._fail(failure)
        except Exception as error:
            self._alarm.ring(error)
