"""A storage: the real node on a disk that loses and tears writes, with checks of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.replica import Replica
from tests.sim.run_environment import RunEnvironment
from tests.sim.storage_process import SimEngine, StorageProcess
from waltz.protocol import STORAGE
from waltz.protocol import storage as st
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz.testing.nodes import SharedEnvironment
from waltz_storage.core.errors import DiskFailed, RequestRefused
from waltz_storage.core.log.partition_log import OUT_OF_ORDER
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.scrubber import Scrubber

_RESTART_SECONDS = 0.2
"""The mean time until a process that has ended is started again."""

_CRASH_AGAIN_RATE = 0.1
"""How often power is lost again during or soon after a start."""

_FLUSH_MARKS_RATE = 0.2
"""How often the flushed marks are made durable after a round of appends."""


class PowerLost(BaseException):
    """Loss of power in the middle of an operation. No error handler of the product catches it."""


class SimStorage:
    """A machine with its disk, on which a process is killed and started again."""

    def __init__(
        self,
        number: int,
        shared: SharedEnvironment,
        environment: RunEnvironment,
        random: Random,
        segment_bytes: int,
        engine: SimEngine,
        partitions: int,
    ) -> None:
        self.history = environment.history
        self._clock = environment.clock
        self._failure = environment.failure
        self._random = random
        self._process = StorageProcess(number, shared, self)
        self.name = self._process.address
        self.host = self._process.host
        self.segment_bytes = segment_bytes
        self.engine = engine
        self.up = False
        """Whether a process runs whose start has ended."""
        self.version = max(STORAGE.versions)
        """The newest protocol version for servers that its program supports."""
        self.replicas = tuple(
            Replica(self.name, p, self._directory, self._without_faults) for p in range(partitions)
        )
        self._shared = shared
        self._starting = False
        self._incarnation = 0
        """Number of starts and ends of processes: work that was planned before one is dropped."""
        self._healed = False
        """Whether `heal` was called: no more faults happen by themselves."""
        self._upgraded = False
        """Whether every process from now on has the newest version."""
        self.waits_for_heal = True
        """Whether an old process that refuses to empty its log is upgraded only after `heal`."""
        self._refused: set[object] = set()
        """Connections on which an append was refused."""
        self._snapshot: tuple[MemoryDisk, list[int]] | None = None
        """A copy of the disk, and the highest possible id of each replica at that time."""
        self.scrubs = False
        """Whether processes search for damaged records, and repair them."""
        self._new_disk = True
        """Whether the disk does not have all partitions yet that an administrator assigns first."""
        self.starts_switched_off = False
        """Whether partitions of a new disk are switched off: no server uses them."""

    @property
    def disk(self) -> MemoryDisk:
        """The disk of the present or the next process."""
        return self._process.disk

    @property
    def scrubber(self) -> Scrubber | None:
        """The scrubber of the present process, None while none runs."""
        node = self._process.node
        return node._scrubber if node is not None else None

    # ---- process

    def start(self) -> None:
        """Start a process, which opens the directory, with recovery."""
        if self.up or self._starting:
            return
        self._starting = True
        self.disk.failing_flush = 0
        if not self._healed and self._random.random() < _CRASH_AGAIN_RATE:
            self.lose_power_soon()
        newest = max(STORAGE.versions)
        version = self._random.choice((*STORAGE.versions, newest))
        self.version = newest if self._upgraded else version
        self._incarnation += 1
        self._failure.spawn(self._start())

    def start_later(self) -> None:
        """Start after a while."""
        self._clock.after(self._random.expovariate(1 / _RESTART_SECONDS), self.start)

    def heal(self) -> None:
        """Start with free space and without further faults."""
        self._healed = True
        self.disk.space = UNLIMITED
        self.disk.failing_flush = 0
        self.disk.observer = None
        self.start()

    def crash(self, *, power_loss: bool) -> None:
        """End at once: only the process, or with ``power_loss`` the machine.

        A machine that loses power loses the writes that were not flushed.
        """
        if self.up:
            name = "storage machine lost power" if power_loss else "storage killed"
            self.history.fault(self.name, name)
            self._end(power_loss=power_loss)

    def _upgrade(self) -> None:
        """Replace the process by one of the newest version."""
        self.history.note(self.name, "upgraded, because it refuses to empty its log")
        self._upgraded = True
        self._end(power_loss=False)
        self.start()

    async def _start(self) -> None:
        try:
            await self._process.start()
            self.up = True
            self.history.counters[f"storage: started with the engine {self.engine.kind}"] += 1
            for replica in self.replicas:
                replica.check_after_start()
                self.history.note(self.name, f"started, {replica.partition}: {replica.state()}")
        except (DiskFailed, PowerLost) as error:
            self._end_after_disk_error(error)
        finally:
            self._starting = False

    def count_findings(self) -> None:
        """Count what the present process has repaired and compared; call this once at its end.

        Damaged records do not make replicas differ, and nothing else may.
        """
        node = self._process.node
        if node is None or self.scrubber is None:
            return
        differences, counters = node._differences, self.history.counters
        counters["rot: records repaired"] += self.scrubber.findings.repaired
        counters["rot: a storage compared its replicas"] += differences.compared_bytes > 0
        if differences.found:
            raise Violation(Guarantee.SAME, f"{self.name} has found replicas that differ")

    def _end(self, *, power_loss: bool) -> None:
        self.count_findings()
        self.up = False
        self._incarnation += 1
        self._refused.clear()
        process = self._process
        self._shared.network.take_down(self.host)
        if process.engine is not None:
            process.engine.abandon()
        disk = process.disk
        process.disk = disk.crashed(self._random) if power_loss else disk.restarted()
        process.node = None

    def _end_after_disk_error(self, error: DiskFailed | PowerLost) -> None:
        """End the process as the loss of power or a failed flush does, and start it again later."""
        if isinstance(error, PowerLost):
            self.history.fault(self.name, "power lost in the middle of a change")
            self._end(power_loss=True)
        else:
            self.history.fault(self.name, "flush failed")
            self._end(power_loss=self._random.random() < 0.5)
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
        """Take a snapshot of the disk, also of that of a running process."""
        ids = [replica.highest_possible_id for replica in self.replicas]
        self._snapshot = (self.disk.restarted(), ids)

    def restore_snapshot(self) -> None:
        """Restore the snapshot of the disk; only while down."""
        assert not self.up
        assert self._snapshot is not None
        self.history.fault(self.name, "old snapshot restored")
        disk, highest_possible_ids = self._snapshot
        self._process.disk = disk.restarted()
        for replica, last_id in zip(self.replicas, highest_possible_ids, strict=True):
            replica.reset(last_id)

    def fail_a_flush(self) -> None:
        """Make one of the next flushes fail."""
        self.disk.failing_flush = self._random.randint(1, 4)

    def lose_power_soon(self) -> None:
        """Lose power after one of the next changes of the disk, in the middle of an operation."""
        disk, remaining_changes = self.disk, self._random.randint(1, 12)

        def count_change() -> None:
            nonlocal remaining_changes
            remaining_changes -= 1
            if remaining_changes == 0:
                disk.observer = None
                raise PowerLost

        disk.observer = count_change

    def fill(self, seconds: float) -> None:
        """Leave almost no space on the disk for a while."""
        self.history.fault(self.name, "disk full", f" for {seconds:.3f} s")
        disk = self.disk
        disk.space = UNLIMITED - disk.free_bytes() + self._random.choice((0, 0, 300))
        self._clock.after(seconds, lambda: setattr(disk, "space", UNLIMITED))

    def rot(self) -> None:
        """Flip a bit of a file, unnoticed by the program."""
        folder = str(self._random.choice(self.replicas).partition)
        paths = [f"{folder}/{name}" for name in sorted(self.disk.names(folder))]
        paths = [path for path in paths if self.disk.content(path)]
        if not paths:
            return
        path = self._random.choice(paths)
        self.rot_at(path, self._random.randrange(len(self.disk.content(path))))

    def rot_at(self, path: str, position: int) -> None:
        """Flip a bit of the byte at ``position``, unnoticed by the program."""
        flipped = self.disk.content(path)[position] ^ 1 << self._random.randrange(8)
        self.history.fault(self.name, "bit flipped", f" in {path} at {position}")
        self.disk.damage(path, position, bytes((flipped,)))

    # ---- requests (`Machine`)

    def draw_flush_of_marks(self) -> bool:
        """See Machine."""
        return self._random.random() < _FLUSH_MARKS_RATE

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """See Machine. The time is only about ``seconds``."""
        seconds *= 0.5 + self._random.random()
        self._clock.after(seconds, self._run_in_incarnation, self._incarnation, work)

    def record_request(self, request: Any) -> None:
        """See Machine."""
        self.history.detail(self.name, "gets {}", request)
        if 0 <= request.partition < len(self.replicas):
            self.replicas[request.partition].record_request(request)

    def check_answer(self, connection: object, request: Any, answer: Any) -> None:
        """See Machine. Record what a successful answer shows about the replica."""
        self.history.detail(self.name, "answers {}", answer)
        if isinstance(answer, st.FailureResponse):
            self._check_refusal(connection, request, answer.failure.message or "")
        elif isinstance(request, st.AppendRequest):
            self.replicas[request.partition].record_appended(request)
        elif isinstance(request, st.TruncateRequest | st.TruncateBelowMarkRequest):
            self.replicas[request.partition].record_truncation(answer.transaction_id)
        elif isinstance(request, st.SetLowWaterMarkRequest):
            self.replicas[request.partition].record_mark(request.low_water_mark)

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
        is_old = self.version < st.TRUNCATE_BELOW_MARK_SINCE
        is_cut_below_mark = isinstance(request, st.TruncateRequest) and "are committed" in why
        may_upgrade = self._healed or not self.waits_for_heal
        if may_upgrade and is_old and is_cut_below_mark:
            # With an old version the server cannot name the mark, so the storage refuses to empty
            # a log that has one (docs/compatibility.md). Without an upgrade it refuses for ever.
            self._clock.after(0, self._run_in_incarnation, self._incarnation, self._upgrade)

    def _run_in_incarnation(self, incarnation: int, work: Callable[[], None]) -> None:
        """Run ``work``, unless ``incarnation`` is over.

        A failed flush or a loss of power ends the process, any other error the run.
        """
        if incarnation != self._incarnation:
            return
        try:
            work()
        except (DiskFailed, PowerLost) as error:
            self._end_after_disk_error(error)
        except Exception as error:
            self._failure.stop_run(error)
