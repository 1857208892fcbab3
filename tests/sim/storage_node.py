"""Simulate a storage node: the real engine on a disk that loses and tears writes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.sim.clock import Clock
from tests.sim.delayed_flushes import TASK_SECONDS, DelayedFlushes
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.network import Channel, Network
from tests.sim.replica import Replica
from tests.support.inline_engine import arrival
from waltz.protocol import storage as st
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz_storage.core.engine.engine import Arrival, Done, Engine, LaneTask
from waltz_storage.core.engine.rounds import Answer, RoundPart
from waltz_storage.core.errors import DiskFailed, RequestRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import OUT_OF_ORDER
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID(int=0x5EED)
WAKE_SECONDS = 0.0001
"""How long the engine's thread sleeps at most: arrivals in that time are done together."""

RESTART_SECONDS = 0.2
MARKS_FLUSHED = 0.2
"""Share of the rounds after which the flushed marks are made durable."""
CRASHES_AGAIN = 0.1
"""Share of the starts in which power is lost again."""


class PowerLost(BaseException):
    """Loss of power in the middle of an operation. No error handler may catch it."""


class StorageNode:
    """One process with its disk."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        random: Random,
        network: Network,
        history: History,
        segment_bytes: int,
        partitions: int,
    ) -> None:
        self.name = name
        self.disk = MemoryDisk()
        self.up = False
        self.version = 3
        """The newest protocol version for servers that its program supports."""
        self.replicas = tuple(Replica(name, p, lambda: self._directory) for p in range(partitions))
        self._clock = clock
        self._random = random
        self._network = network
        self._history = history
        self._options = LogOptions(
            now_ms=lambda: 0, segment_threshold=segment_bytes, allocate_bytes=2048
        )
        self._incarnation = 0
        self._healed = False
        self._directory: StorageDirectory | None = None
        self._engine: Engine | None = None
        self._flushes = DelayedFlushes(self._later, history)
        self._news: list[Arrival] = []
        self._waking = False
        self._refused: set[Channel] = set()
        """Connections on which an append was refused."""
        self._snapshot: tuple[MemoryDisk, list[int]] | None = None

    # ---- process

    def start(self) -> None:
        """Open the directory, with recovery; assign missing partitions."""
        if self.up:
            return
        self.disk.failing_flush = 0
        if not self._healed and self._random.random() < CRASHES_AGAIN:
            self.lose_power_soon()
        self.up = True
        self.version = self._random.choice((0, 3))
        self._incarnation += 1
        self._guarded(self._incarnation, self._open)

    def start_later(self) -> None:
        """Start after a while."""
        self._clock.after(self._random.expovariate(1 / RESTART_SECONDS), self.start)

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
            self._history.fault(self.name, name)
            self._end(power)

    def _end(self, power: bool) -> None:
        self.up = False
        self._incarnation += 1
        self._directory = self._engine = None
        self._news.clear()
        self._waking = False
        self._refused.clear()
        self.disk = self.disk.crashed(self._random) if power else self.disk.restarted()
        self._network.cut_node(self.name)

    # ---- faults

    def wipe(self) -> None:
        """Lose the disk; only while down."""
        assert not self.up
        self._history.fault(self.name, "disk emptied")
        self.disk = MemoryDisk()
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
        self._history.fault(self.name, "old snapshot restored")
        disk, bounds = self._snapshot
        self.disk = disk.restarted()
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
        self._history.fault(self.name, "disk full", f" for {seconds:.3f} s")
        disk = self.disk
        disk.space = UNLIMITED - disk.left() + self._random.choice((0, 0, 300))
        self._clock.after(seconds, lambda: setattr(disk, "space", UNLIMITED))

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
        self._history.fault(self.name, "bit flipped", f" in {path} at {place}")
        self.disk.damage(path, place, bytes((flipped,)))

    # ---- requests

    def received(self, channel: Channel, message: Any) -> None:
        """Queue a request that has arrived."""
        if self.up:
            self._history.detail(self.name, "gets {}", message)
            self._check_version(message)
            self.replicas[message.partition].record_request(message)
            self._news.append(
                arrival(message, lambda a: self._answer(channel, message, a), self.version)
            )
            if not self._waking:
                self._waking = True
                delay = self._random.random() * WAKE_SECONDS
                self._clock.after(delay, self._guarded, self._incarnation, self._wake)

    def lost(self, channel: Channel) -> None:
        """Ignore a lost connection: its requests are done nevertheless."""

    def _answer(self, channel: Channel, request: Any, answer: Any) -> None:
        self._history.detail(self.name, "answers {}", answer)
        if isinstance(answer, st.FailureResponse):
            self._check_refusal(channel, request, answer.failure.message or "")
        elif isinstance(request, st.AppendRequest):
            self.replicas[request.partition].appended(request)
        elif isinstance(request, st.TruncateRequest | st.TruncateBelowMarkRequest):
            self.replicas[request.partition].cut(answer.transaction_id)
        elif isinstance(request, st.SetLowWaterMarkRequest):
            self.replicas[request.partition].marked(request.low_water_mark)
        channel.send(self, answer)

    def _check_version(self, request: st.Request) -> None:
        newer = isinstance(request, st.BoundedRecordListRequest | st.CommittedRecordListRequest)
        if newer and self.version < st.BOUNDED_LISTS_SINCE:
            raise Violation(Guarantee.SOUND, f"{self.name} is too old for {request}")
        cut = isinstance(request, st.TruncateBelowMarkRequest)
        if cut and self.version < st.CUTS_BELOW_MARKS_SINCE:
            raise Violation(Guarantee.SOUND, f"{self.name} is too old for {request}")

    def _check_refusal(self, channel: Channel, request: Any, why: str) -> None:
        """Check a refusal: a server must not send requests that are refused for these reasons."""
        if isinstance(request, st.SetLowWaterMarkRequest) and "max transaction id" in why:
            mark = request.low_water_mark
            raise Violation(Guarantee.SAME, f"{self.name} is to begin a session at {mark}: {why}")
        if isinstance(request, st.AppendRequest):
            # Only appends sent after a refused append may be out of order.
            if OUT_OF_ORDER in why and channel not in self._refused:
                first_id = request.records.first_id()
                raise Violation(Guarantee.SAME, f"{self.name} is to append {first_id}: {why}")
            self._refused.add(channel)

    def _open(self) -> None:
        directory = StorageDirectory(self.disk, KEY, len(self.replicas), self._options)
        for replica in self.replicas:
            try:
                if not directory.info(replica.partition).assigned:
                    directory.assign(replica.partition)
            except RequestRefused as refused:
                self._history.note(self.name, f"cannot take {replica.partition}: {refused}")
        for partition, reason in directory.refused.items():
            self._history.counters["storage: partition refused at start"] += 1
            self._history.note(self.name, f"refuses partition {partition}: {reason}")
        self._directory = directory
        self._flushes = DelayedFlushes(self._later, self._history)
        self._engine = Engine(directory)
        for replica in self.replicas:
            replica.started()
            self._history.note(self.name, f"started, {replica.partition}: {replica.state()}")

    def _wake(self) -> None:
        self._waking = False
        self._step()

    def _step(self) -> None:
        """Step the engine with all arrivals until there are none, unless it is flushing."""
        assert self._engine is not None
        while self._news and not self._flushes.busy:
            taken = list(self._news)
            self._news.clear()
            ready = self._engine.step(taken)
            deliver(ready.answers)
            for task in ready.tasks:
                self._later(TASK_SECONDS, partial(self._run_task, task))
            if ready.parts:
                self._flushes.commit(ready.parts, self._settle)

    def _run_task(self, task: LaneTask) -> None:
        assert self._engine is not None
        self._finish(self._engine.run_task(task))

    def _settle(self, part: RoundPart) -> None:
        assert self._engine is not None
        self._finish(self._engine.settle(part, self._clock.now))
        if self._random.random() < MARKS_FLUSHED:
            self._later(TASK_SECONDS, self._engine.directory.flush_marks)

    def _finish(self, done: Done) -> None:
        deliver(done.answers)
        self._news.append(done.freed)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do ``work`` after about ``seconds``, unless the process has ended by then."""
        incarnation = self._incarnation

        def work_and_step() -> None:
            work()
            self._step()

        seconds *= 0.5 + self._random.random()
        self._clock.after(seconds, self._guarded, incarnation, work_and_step)

    def _guarded(self, incarnation: int, work: Callable[..., None], *arguments: Any) -> None:
        """Run ``work`` in this incarnation; a failed flush or a loss of power ends the process."""
        if incarnation != self._incarnation:
            return
        try:
            work(*arguments)
            return
        except DiskFailed:
            self._history.fault(self.name, "flush failed")
            self._end(power=self._random.random() < 0.5)
        except PowerLost:
            self._history.fault(self.name, "power lost in the middle of a change")
            self._end(power=True)
        self.start_later()


def deliver(answers: list[Answer]) -> None:
    """Call each reply with its answer."""
    for reply, answer in answers:
        reply(answer)
