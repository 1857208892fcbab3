"""A storage node in the simulation: the real engine and files over a disk that loses and tears."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from random import Random
from typing import Any

from tests.faultdisk import UNLIMITED, FaultDisk
from tests.inline_engine import arrival
from tests.sim.clock import Clock
from tests.sim.network import Channel, Network
from tests.sim.promises import Promise, Violation
from tests.sim.story import Story
from waltz.protocol import storage as st
from waltz_storage.directory import StorageDirectory
from waltz_storage.durability import RoundPart, T
from waltz_storage.engine import Arrival, Engine
from waltz_storage.errors import DiskFailed, RequestRefused
from waltz_storage.log import OUT_OF_ORDER, LogOptions, PartitionLog

KEY = uuid.UUID(int=0x5EED)
PARTITION = 0
FLUSH_SECONDS = 0.001
TASK_SECONDS = 0.0002
RESTART_SECONDS = 0.2
CRASHES_AGAIN = 0.1
"""Share of the starts in which power is lost once more."""


class PowerLost(BaseException):
    """The machine is gone in the middle of what it did. No handler may take it for an error."""


class StorageNode:
    """One process with its disk."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        random: Random,
        network: Network,
        story: Story,
        segment_bytes: int,
    ) -> None:
        self.name = name
        self.disk = FaultDisk()
        self.up = False
        self.verified = -1
        """Up to where the checker has compared the log with that of others."""
        self._bound = -1
        """The log cannot go further: what was cut, and what came after it."""
        self._clock = clock
        self._random = random
        self._network = network
        self._story = story
        self._options = LogOptions(
            now_ms=lambda: 0, segment_threshold=segment_bytes, allocate_bytes=2048
        )
        self._life = 0
        self._healed = False
        self._directory: StorageDirectory | None = None
        self._engine: Engine | None = None
        self._news: list[Arrival] = []
        self._refused: set[Channel] = set()
        """Connections on which an append was refused."""
        self._snapshot: tuple[FaultDisk, int] | None = None

    @property
    def log(self) -> PartitionLog | None:
        """The open log, None while the node is down or refuses its partition."""
        if self._directory is None or PARTITION not in self._directory.partitions:
            return None
        return self._directory.partitions[PARTITION].log

    @property
    def session_id(self) -> int:
        """The persisted session, -1 while the node is down or refuses its partition."""
        if self._directory is None or PARTITION not in self._directory.partitions:
            return -1
        return self._directory.partitions[PARTITION].info.session_id

    # ---- process

    def start(self) -> None:
        """Open the directory, with recovery; a partition that is missing gets assigned."""
        if self.up:
            return
        self.disk.failing_flush = 0
        if not self._healed and self._random.random() < CRASHES_AGAIN:
            self.lose_power_soon()
        self.up = True
        self._life += 1
        self._guarded(self._life, self._open)

    def heal(self) -> None:
        """Come back, with space and without further faults."""
        self._healed = True
        self.disk.space = UNLIMITED
        self.disk.failing_flush = 0
        self.disk.observer = None
        self.start()

    def crash(self, *, power: bool) -> None:
        """End at once: only the process, or the machine with what was not flushed."""
        if self.up:
            name = "storage machine lost power" if power else "storage killed"
            self._story.fault(self.name, name)
            self._end(power)

    def _end(self, power: bool) -> None:
        self.up = False
        self._life += 1
        self._directory = self._engine = None
        self._news.clear()
        self._refused.clear()
        self.disk = self.disk.crashed(self._random) if power else self.disk.restarted()
        self._network.cut_node(self.name)

    # ---- faults

    def wipe(self) -> None:
        """Lose the disk; only while down."""
        assert not self.up
        self._story.fault(self.name, "disk emptied")
        self.disk = FaultDisk()
        self.verified = self._bound = -1

    def take_snapshot(self) -> None:
        """Remember the disk as it is; only while down."""
        assert not self.up
        self._snapshot = (self.disk.restarted(), self._bound)

    def restore_snapshot(self) -> None:
        """Go back to the remembered disk; only while down."""
        assert not self.up
        assert self._snapshot is not None
        self._story.fault(self.name, "old snapshot restored")
        disk, self._bound = self._snapshot
        self.disk = disk.restarted()
        self.verified = -1

    def fail_a_flush(self) -> None:
        """Have one of the next flushes fail."""
        self.disk.failing_flush = self._random.randint(1, 4)

    def lose_power_soon(self) -> None:
        """Lose power after one of the next changes of the disk, in the middle of what goes on."""
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
        self._story.fault(self.name, "disk full", f" for {seconds:.3f} s")
        disk = self.disk
        disk.space = UNLIMITED - disk.left() + self._random.choice((0, 0, 300))
        self._clock.after(seconds, lambda: setattr(disk, "space", UNLIMITED))

    def rot(self) -> None:
        """Flip a bit of a file, behind everybody's back."""
        names = [f"{PARTITION}/{name}" for name in self.disk.names(str(PARTITION))]
        if not names:
            return
        path = self._random.choice(sorted(names))
        content = self.disk.content(path)
        place = self._random.randrange(len(content))
        flipped = content[place] ^ 1 << self._random.randrange(8)
        self._story.fault(self.name, "bit flipped", f" in {path} at {place}")
        self.disk.damage(path, place, bytes((flipped,)))

    # ---- requests

    def received(self, channel: Channel, message: Any) -> None:
        """A request has arrived."""
        if self.up:
            self._story.detail(self.name, "gets {}", message)
            if isinstance(message, st.AppendRequest) and message.records.count:
                last_id = message.records.first_id() + message.records.count - 1
                self._bound = max(self._bound, last_id)
            come = arrival(message, lambda answer: self._answer(channel, message, answer))
            self._guarded(self._life, self._step, come)

    def lost(self, channel: Channel) -> None:
        """A server's connection is gone; what it asked is done all the same."""

    def _answer(self, channel: Channel, request: Any, answer: Any) -> None:
        self._story.detail(self.name, "answers {}", answer)
        if isinstance(answer, st.FailureResponse):
            self._check_refusal(channel, request, answer.failure.message or "")
        elif isinstance(request, st.TruncateRequest):
            self._bound = answer.transaction_id
            self.verified = min(self.verified, self._bound)
        channel.send(self, answer)

    def _check_refusal(self, channel: Channel, request: Any, why: str) -> None:
        """Refuse what a server that knows its place would not ask."""
        if isinstance(request, st.SetLowWaterMarkRequest) and "max transaction id" in why:
            mark = request.low_water_mark
            raise Violation(Promise.SAME, f"{self.name} is to begin a session at {mark}: {why}")
        if isinstance(request, st.AppendRequest):
            # What follows a refused append on its way comes out of order, but nothing else does.
            if OUT_OF_ORDER in why and channel not in self._refused:
                first_id = request.records.first_id()
                raise Violation(Promise.SAME, f"{self.name} is to append {first_id}: {why}")
            self._refused.add(channel)

    def _open(self) -> None:
        directory = StorageDirectory(self.disk, KEY, 1, self._options)
        try:
            if not directory.info(PARTITION).assigned:
                directory.assign(PARTITION)
        except RequestRefused as refused:
            self._story.tell(self.name, f"cannot take the partition: {refused}")
        for reason in directory.refused.values():
            self._story.counters["storage: partition refused at start"] += 1
            self._story.tell(self.name, f"refuses the partition: {reason}")
        self._directory = directory
        self._engine = Engine(
            directory,
            _LateFlushes(self._later),
            _LateTasks(self._later),
            deliver=self._deliver,
            arrive=self._news.append,
            fail=_give_up,
            clock=lambda: self._clock.now,
        )
        end = self.log.max_id if self.log is not None else -1
        if end > self._bound:
            raise Violation(
                Promise.DURABLE,
                f"{self.name} finds {end}, although all after {self._bound} was cut",
            )
        self.verified = min(self.verified, end)
        self._story.tell(self.name, f"started, session {self.session_id}, log to {end}")

    def _step(self, *arrivals: Arrival) -> None:
        """Have the engine do what has arrived, and what follows from it."""
        assert self._engine is not None
        self._news += arrivals
        while self._news:
            taken = list(self._news)
            self._news.clear()
            self._engine.step(taken)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do ``work`` after about ``seconds``, unless the process has ended by then."""
        life = self._life

        def work_and_step() -> None:
            work()
            self._step()

        seconds *= 0.5 + self._random.random()
        self._clock.after(seconds, self._guarded, life, work_and_step)

    def _guarded(self, life: int, work: Callable[..., None], *arguments: Any) -> None:
        """Work in this life of the process; a failed flush ends it, and so does loss of power."""
        if life != self._life:
            return
        try:
            work(*arguments)
            return
        except DiskFailed:
            self._story.fault(self.name, "flush failed")
            self._end(power=self._random.random() < 0.5)
        except PowerLost:
            self._story.fault(self.name, "power lost in the middle of a change")
            self._end(power=True)
        self._clock.after(self._random.expovariate(1 / RESTART_SECONDS), self.start)

    def _deliver(self, answers: list[tuple[Callable[[Any], None], Any]]) -> None:
        for reply, answer in answers:
            reply(answer)


Later = Callable[[float, Callable[[], None]], None]


class _LateFlushes:
    """Implements `Durability`: the machine may die between a write and its flush."""

    def __init__(self, later: Later) -> None:
        self._later = later

    def commit(
        self, parts: Sequence[RoundPart[T]], settled: Callable[[RoundPart[T]], None]
    ) -> None:
        for part in parts:
            part.log.write(part.staged)
            self._later(FLUSH_SECONDS, partial(self._flush, part, settled))

    def _flush(self, part: RoundPart[T], settled: Callable[[RoundPart[T]], None]) -> None:
        part.log.flush(part.staged)
        settled(part)


class _LateTasks(Executor):
    """Does a task a little later, as a thread would."""

    def __init__(self, later: Later) -> None:
        self._later = later

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._later(TASK_SECONDS, lambda: fn(*args, **kwargs))
        return Future()


def _give_up(error: BaseException) -> None:
    raise error
