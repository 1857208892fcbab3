"""A storage node in the simulation: the real storage code over a disk that loses and tears."""

from __future__ import annotations

import uuid
from collections import Counter, deque
from random import Random
from typing import Any

from tests.faultdisk import UNLIMITED, FaultDisk
from tests.sim.clock import Clock
from tests.sim.network import Channel, Network
from waltz.protocol import storage as st
from waltz_storage.directory import StorageDirectory
from waltz_storage.errors import DiskFailed, RequestRefused
from waltz_storage.log import LogOptions, PartitionLog, StagedAppend
from waltz_storage.partition import append_answers, failure

KEY = uuid.UUID(int=0x5EED)
PARTITION = 0
SEGMENT_BYTES = 24_000
GROUP_APPENDS = 8


class StorageNode:
    """One process with its disk. Requests are done in arrival order, appends in groups."""

    def __init__(
        self, name: str, clock: Clock, random: Random, network: Network, counters: Counter[str]
    ) -> None:
        self.name = name
        self.disk = FaultDisk()
        self.up = False
        self.flush_seconds = 0.001
        self._clock = clock
        self._random = random
        self._network = network
        self._counters = counters
        self._life = 0
        self._directory: StorageDirectory | None = None
        self._queue: deque[tuple[Channel, st.Request]] = deque()
        self._busy = False
        self._snapshot: FaultDisk | None = None

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

    def heal(self) -> None:
        """Come back, with space and without further faults."""
        self.disk.space = UNLIMITED
        self.disk.failing_flush = 0
        self.start()

    def start(self) -> None:
        """Open the directory, with recovery; a partition that is missing gets assigned."""
        if self.up:
            return
        self.disk.failing_flush = 0
        options = LogOptions(now_ms=lambda: 0, segment_threshold=SEGMENT_BYTES, allocate_bytes=2048)
        try:
            self._directory = StorageDirectory(self.disk, KEY, 1, options)
            if not self._directory.info(PARTITION).assigned:
                self._directory.assign(PARTITION)
        except RequestRefused:
            self._counters["storage: partition refused at start"] += 1
        self.up = True
        self._life += 1
        self._busy = False

    def crash(self, *, power: bool) -> None:
        """End at once: only the process, or the machine with what was not flushed."""
        if not self.up:
            return
        self._counters[
            "fault: storage machine lost power" if power else "fault: storage killed"
        ] += 1
        self.up = False
        self._life += 1
        self._directory = None
        self._queue.clear()
        self.disk = self.disk.crashed(self._random) if power else self.disk.restarted()
        self.disk.space = UNLIMITED
        self._network.cut_node(self.name)

    def wipe(self) -> None:
        """Lose the disk; only while down."""
        assert not self.up
        self._counters["fault: disk emptied"] += 1
        self.disk = FaultDisk()

    def take_snapshot(self) -> None:
        """Remember the disk as it is; only while down."""
        assert not self.up
        self._snapshot = self.disk.restarted()

    def restore_snapshot(self) -> bool:
        """Go back to the remembered disk; only while down."""
        assert not self.up
        if self._snapshot is None:
            return False
        self._counters["fault: old snapshot restored"] += 1
        self.disk = self._snapshot.restarted()
        return True

    def fail_a_flush(self) -> None:
        """Have one of the next flushes fail."""
        self.disk.failing_flush = self._random.randint(1, 4)

    def fill(self, seconds: float) -> None:
        """Leave no space on the disk for a while."""
        self._counters["fault: disk full"] += 1
        disk = self.disk
        disk.space = 0
        self._clock.after(seconds, lambda: setattr(disk, "space", UNLIMITED))

    def received(self, channel: Channel, message: Any) -> None:
        """A request has arrived: it raises the fence at once, and waits for its turn."""
        if self.up:
            partition = self._directory and self._directory.partitions.get(PARTITION)
            if partition:
                partition.see(message.session_id)
            self._queue.append((channel, message))
            self._next()

    def lost(self, channel: Channel) -> None:
        """A server's connection is gone; what it asked is done all the same."""

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        life = self._life
        group = [self._queue.popleft()]
        if isinstance(group[0][1], st.AppendRequest):
            while (
                self._queue
                and len(group) < GROUP_APPENDS
                and isinstance(self._queue[0][1], st.AppendRequest)
            ):
                group.append(self._queue.popleft())
            self._guarded(life, self._write_group, life, group)
        else:
            self._guarded(life, self._do_one, life, group[0])

    def _do_one(self, life: int, entry: tuple[Channel, st.Request]) -> None:
        channel, request = entry
        answer: Any
        try:
            assert self._directory is not None
            answer = self._directory.partition(request.partition).handle(request)
        except RequestRefused as refused:
            answer = failure(request, refused)
        self._finish(life, [(channel, answer)])

    def _write_group(self, life: int, group: list[tuple[Channel, Any]]) -> None:
        assert self._directory is not None
        admitted: list[tuple[Channel, Any]] = []
        answers: list[tuple[Channel, Any]] = []
        for channel, request in group:
            try:
                partition = self._directory.partition(request.partition)
                partition.admit(request)
                admitted.append((channel, request))
            except RequestRefused as refused:
                answers.append((channel, failure(request, refused)))
        if not admitted:
            self._finish(life, answers)
            return
        log = self._directory.partitions[PARTITION].log
        staged = log.stage([request.records for _, request in admitted])
        log.write(staged)
        # The machine may die between the write and the flush.
        seconds = self.flush_seconds * (0.5 + self._random.random())
        self._clock.after(
            seconds, self._guarded, life, self._flush_group, life, staged, admitted, answers
        )

    def _flush_group(
        self,
        life: int,
        staged: StagedAppend,
        admitted: list[tuple[Channel, Any]],
        answers: list[tuple[Channel, Any]],
    ) -> None:
        assert self._directory is not None
        log = self._directory.partitions[PARTITION].log
        log.flush(staged)
        outcomes = log.complete(staged)
        done = append_answers([request for _, request in admitted], outcomes)
        answers += [(c, answer) for (c, _), answer in zip(admitted, done, strict=True)]
        self._finish(life, answers)

    def _guarded(self, life: int, work: Any, *arguments: Any) -> None:
        """Run ``work`` in this life of the process; a failed flush ends it."""
        if life != self._life:
            return
        try:
            work(*arguments)
        except DiskFailed:
            self._counters["fault: flush failed"] += 1
            self.crash(power=self._random.random() < 0.5)
            self._clock.after(self._random.expovariate(1 / 0.2), self.start)

    def _finish(self, life: int, answers: list[tuple[Channel, Any]]) -> None:
        if life != self._life:
            return
        for channel, answer in answers:
            channel.send(self, answer)
        self._busy = False
        self._next()
