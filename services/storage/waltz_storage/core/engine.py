"""The engine: orders the requests of all partitions, and writes in rounds.

Each partition has a lane: a queue of jobs in arrival order, done one after the other. A round takes
the appends that wait at the heads of all lanes, one group per lane, and makes them durable
together; everything else is a task of its lane alone, done by an executor. `Engine` has no thread
of its own: `engine_thread` drives it in a process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from waltz.protocol import storage
from waltz_storage.core.directory import StorageDirectory
from waltz_storage.core.durability import Durability, RoundPart
from waltz_storage.core.errors import RequestRefused
from waltz_storage.core.partition import StoragePartition, append_answers, failure

GROUP_LIMIT_BYTES = 8 << 20
"""A group of appends ends before it would grow beyond this; it always has the first one."""

_NOWHERE = -1
"""The lane of all ids that are no partition's; there is nothing to do but to say so."""

Reply = Callable[[Any], None]
Deliver = Callable[[list[tuple[Reply, Any]]], None]
Task = Callable[[], None]


@dataclass(frozen=True, slots=True)
class AppendJob:
    """An append, where its answer goes, and when it arrived (in seconds of the engine's clock).

    ``version`` is that of the protocol on its connection.
    """

    request: storage.AppendRequest
    version: int
    reply: Reply
    arrived: float


@dataclass(frozen=True, slots=True)
class AskJob:
    """Any other request of a server, and where its answer goes."""

    request: storage.Request
    version: int
    reply: Reply


Job = AppendJob | AskJob | Task


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something for a lane: a job, or (None) the news that it is free again."""

    partition: int
    job: Job | None


@dataclass(slots=True)
class _Lane:
    """One partition's jobs. ``taken``: a round or a task has the partition now."""

    partition: int
    jobs: deque[Job] = field(default_factory=deque)
    taken: bool = False


@dataclass(frozen=True, slots=True)
class _Group:
    """The appends of one lane in a round."""

    opened: StoragePartition
    appends: list[AppendJob]


class Engine:
    """Decides what is done next. One thread calls `step`; ``arrive`` brings news to a later step.

    ``deliver`` is called with replies and answers, from any thread. ``fail`` is called when nothing
    may be answered or written any more: the process must end.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        durability: Durability,
        tasks: Executor,
        *,
        deliver: Deliver,
        arrive: Callable[[Arrival], None],
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self.directory = directory
        self._durability = durability
        self._tasks = tasks
        self._deliver = deliver
        self._arrive = arrive
        self._fail = fail
        self._clock = clock
        self._lanes: dict[int, _Lane] = {}

    def queued(self, partition: int) -> int:
        """Return how many jobs wait for a partition."""
        lane = self._lanes.get(partition)
        return len(lane.jobs) if lane is not None else 0

    @property
    def idle(self) -> bool:
        """Whether no job waits and none is being done."""
        return not any(lane.taken or lane.jobs for lane in self._lanes.values())

    def step(self, arrivals: Sequence[Arrival]) -> None:
        """Take arrivals, begin the tasks that can begin, do one round. Raises DiskFailed."""
        touched = [self._take_in(arrival) for arrival in arrivals]
        parts: list[RoundPart[_Group]] = []
        for lane in touched:
            while lane.jobs and not lane.taken:
                job = lane.jobs[0]
                if isinstance(job, AppendJob):
                    self._take_group(lane, parts)
                else:
                    lane.jobs.popleft()
                    lane.taken = True
                    self._tasks.submit(self._do, lane.partition, job)
        if parts:
            self._durability.commit(parts, self._settled)

    def _take_in(self, arrival: Arrival) -> _Lane:
        partition, job = arrival.partition, arrival.job
        if not 0 <= partition < self.directory.num_partitions:
            partition = _NOWHERE
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
        if job is None:
            lane.taken = False
            return lane
        lane.jobs.append(job)
        if isinstance(job, AppendJob | AskJob):
            # On arrival, before anything that waits: an older session is fenced off at once.
            opened = self.directory.partitions.get(partition)
            if opened is not None:
                opened.see(job.request)
        return lane

    def _take_group(self, lane: _Lane, parts: list[RoundPart[_Group]]) -> None:
        """Take the appends at the head of a lane; those that may not be done are answered."""
        appends: list[AppendJob] = []
        size = 0
        while lane.jobs:
            job = lane.jobs[0]
            if not isinstance(job, AppendJob):
                break
            size += len(job.request.records.wire)
            if appends and size > GROUP_LIMIT_BYTES:
                break
            lane.jobs.popleft()
            try:
                opened = self.directory.partition(job.request.partition)
                opened.admit(job.request, job.version)
                appends.append(job)
            except RequestRefused as refused:
                self._deliver([(job.reply, failure(job.request, refused))])
        if appends:
            lane.taken = True
            staged = opened.log.stage([append.request.records for append in appends])
            parts.append(RoundPart(_Group(opened, appends), opened.log, staged))

    def _settled(self, part: RoundPart[_Group]) -> None:
        opened, appends = part.owner.opened, part.owner.appends
        outcomes = part.log.complete(part.staged)
        answers = append_answers([append.request for append in appends], outcomes)
        now = self._clock()
        for append in appends:
            opened.appended(append.request.records.count, now - append.arrived)
        replies = [append.reply for append in appends]
        self._deliver(list(zip(replies, answers, strict=True)))
        self._arrive(Arrival(opened.partition, None))

    def _do(self, partition: int, job: AskJob | Task) -> None:
        """Do one task; runs on a thread of the executor."""
        try:
            if isinstance(job, AskJob):
                self._deliver([(job.reply, self._response(job))])
            else:
                job()
        except Exception as error:
            self._fail(error)
        else:
            self._arrive(Arrival(partition, None))

    def _response(self, job: AskJob) -> storage.Response:
        try:
            opened = self.directory.partition(job.request.partition)
            return opened.handle(job.request, job.version)
        except RequestRefused as refused:
            return failure(job.request, refused)
