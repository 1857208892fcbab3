"""Pure. The engine: it orders the requests of all partitions, and groups appends into rounds.

Each partition has a *lane*, a queue of jobs that are done one at a time. A *round* takes the
appends at the heads of all lanes, one group per lane, and makes them durable together. Every other
job is done by a *task* (`LaneTask`), which uses only its own lane. A job that only reads records (a
*read*) is done in steps (see `core.log.log_reads`), and each step is a task.

The jobs of a lane are done in the order of their arrival, with one exception: appends overtake
reads, because a long read must not delay an append (`test_append_waits_for_one_step_of_a_read`).
The rules for each kind of job:

* An append overtakes the reads that arrived before it. It waits for at most one step of a read.
* A read overtakes no job that arrived before it, so it sees the changes of all these jobs. After
  each group of appends, one step of a waiting read is done, so that appends do not stop reads.
* Every other job waits until all reads that arrived before it have ended. So a log is not cut,
  closed or given another session between two steps of a read (planted bug "a truncation overtakes a
  read"). `_begin_change` asserts this rule, and `log_reads` asserts it for the log.

The engine starts no thread and calls no callback. Each method returns the work for the shell:

* `step` returns `Ready`: answers to deliver, tasks to run, a round to write and flush
* `run_task` and `settle` return `Done`: answers to deliver, and the input of a later `step`

`step` runs on one thread. `run_task` and `settle` may run on other threads at the same time. So
each call of these two returns its own `Done`, and none adds to the `Ready` of `step`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from waltz.protocol import storage
from waltz_storage.core.engine.rounds import Answer, AppendJob, Reply, RoundPart
from waltz_storage.core.errors import RequestRefused
from waltz_storage.core.log.log_reads import Steps
from waltz_storage.core.partitions.fencing import is_read
from waltz_storage.core.partitions.partition import append_answers, failure
from waltz_storage.core.partitions.storage_directory import StorageDirectory

GROUP_LIMIT_BYTES = 8 << 20
"""A group of appends ends before it would exceed this size, but it has at least one append."""

_UNKNOWN_PARTITION = -1
"""The lane of requests to partitions that do not exist: each of these requests is refused."""


@dataclass(frozen=True, slots=True)
class RequestJob:
    """A server's request other than an append. ``version`` is the protocol version it uses."""

    request: storage.Request
    version: int
    reply: Reply


AdminJob = Callable[[], list[Answer]]
"""A job of an administrator, done as one task; returns answers to deliver."""


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A read for an administrator or the scrubber; its last step returns answers to deliver."""

    begin: Callable[[], Steps[list[Answer]]]


Job = AppendJob | RequestJob | ReadJob | AdminJob


class Arrival(NamedTuple):
    """A new job for the lane of ``partition``."""

    partition: int
    job: Job


class LaneFreed(NamedTuple):
    """The lane of ``partition`` is free again: its task, or its part of a round, is done."""

    partition: int


EngineInput = Arrival | LaneFreed


class LaneRead:
    """A read in a lane. Only the thread that does a step may use it during this step."""

    __slots__ = ("_steps", "has_ended")

    def __init__(self, steps: Steps[list[Answer]]) -> None:
        self._steps = steps
        self.has_ended = False
        """Whether the last step is done."""

    def step(self) -> list[Answer]:
        """Do the next step; return the answers if it was the last one, else an empty list."""
        assert not self.has_ended, "a read that has ended has no further step"
        try:
            next(self._steps)
        except StopIteration as end:
            self.has_ended = True
            answers: list[Answer] = end.value
            return answers
        return []


@dataclass(frozen=True, slots=True)
class LaneTask:
    """A task: a whole job that is neither an append nor a read, or the next step of a read.

    The shell passes it to `Engine.run_task`, on any thread.
    """

    partition: int
    job: RequestJob | AdminJob | LaneRead


@dataclass(slots=True)
class Ready:
    """What the shell must do after a step, in this order.

    Deliver ``answers``, begin ``tasks``, commit ``parts`` as one round, and pass each durable part
    to `Engine.settle`. The round is last, because the shell may wait for its flush.
    """

    answers: list[Answer] = field(default_factory=list)
    tasks: list[LaneTask] = field(default_factory=list)
    parts: list[RoundPart] = field(default_factory=list)


class Done(NamedTuple):
    """What the shell must do after a task, or a part of a round.

    Deliver ``answers``, then pass ``freed`` to `Engine.step`.
    """

    answers: list[Answer]
    freed: LaneFreed


@dataclass(slots=True)
class _Lane:
    """The waiting jobs of one partition, and the state of its lane."""

    partition: int
    jobs: deque[Job] = field(default_factory=deque)
    """The jobs in their order, without those in ``reads``."""
    reads: deque[LaneRead] = field(default_factory=deque)
    """The reads in progress, in their order. All other jobs that arrived before a read in this list
    are done, or are in the group of appends that uses the partition now."""
    is_busy: bool = False
    """Whether a part of a round, or a task, uses the partition now."""
    is_read_due: bool = False
    """Whether a step of a waiting read precedes the next group of appends."""


class Engine:
    """Decides which jobs run next."""

    def __init__(self, directory: StorageDirectory) -> None:
        self.directory = directory
        self._lanes: dict[int, _Lane] = {}

    def queued(self, partition: int) -> int:
        """Return how many jobs of a partition wait; a read counts until its last step is done."""
        lane = self._lanes.get(partition)
        return len(lane.jobs) + len(lane.reads) if lane is not None else 0

    @property
    def idle(self) -> bool:
        """Whether no job waits or is being done."""
        return not any(lane.is_busy or lane.jobs or lane.reads for lane in self._lanes.values())

    def step(self, inputs: Sequence[EngineInput]) -> Ready:
        """Give inputs to their lanes and begin the jobs of these lanes that can begin now."""
        lanes = [self._add(added) for added in inputs]
        ready = Ready()
        for lane in lanes:
            # A group of appends that are all refused leaves the lane free for the next job.
            while not lane.is_busy and (lane.jobs or lane.reads):
                self._begin_next(lane, ready)
        return ready

    def settle(self, part: RoundPart, now: float) -> Done:
        """Complete a durable part of a round; ``now`` is in seconds, as `AppendJob.arrived`.

        An append that `step` has not refused is answered only here, after its flush: the server
        counts the answer as a vote that the records survive a loss of power (planted bug "append
        answered before it is flushed").
        """
        open_partition, appends = part.partition, part.appends
        outcomes = part.log.complete(part.staged)
        answers = append_answers([append.request for append in appends], outcomes)
        for append, refused in zip(appends, outcomes, strict=True):
            if refused is None:
                open_partition.count_append(append.request.records.count, now - append.arrived)
        replies = [append.reply for append in appends]
        return Done(list(zip(replies, answers, strict=True)), LaneFreed(open_partition.partition))

    def run_task(self, task: LaneTask) -> Done:
        """Do a task; raises DiskFailed."""
        job = task.job
        freed = LaneFreed(task.partition)
        if isinstance(job, LaneRead):
            return Done(job.step(), freed)
        if isinstance(job, RequestJob):
            return Done([(job.reply, self._response(job))], freed)
        return Done(job(), freed)

    def _add(self, added: EngineInput) -> _Lane:
        """Free the lane that the input names, or queue the input's job there; return the lane."""
        partition = added.partition
        if not 0 <= partition < self.directory.num_partitions:
            partition = _UNKNOWN_PARTITION
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
        if isinstance(added, LaneFreed):
            assert lane.is_busy, f"partition {partition}: freed a lane that was free"
            lane.is_busy = False
            if lane.reads and lane.reads[0].has_ended:
                lane.reads.popleft()
            return lane
        job = added.job
        lane.jobs.append(job)
        if isinstance(job, AppendJob | RequestJob):
            # The fence (see `core.partitions.fencing`) rises when a request arrives, before the
            # waiting jobs are done. So waiting appends of an older session are refused. Otherwise
            # they could be written after the new session has read the end of this log
            # (`test_waiting_append_is_refused_when_newer_session_arrives`).
            open_partition = self.directory.partitions.get(partition)
            if open_partition is not None:
                open_partition.raise_fence(job.request)
        return lane

    def _begin_next(self, lane: _Lane, ready: Ready) -> None:
        """Begin the next job of a free lane, or the next step of its first read."""
        assert not lane.is_busy, f"partition {lane.partition}: two jobs at a time"
        # Move the reads at the head to their own queue, so that the appends behind them can begin.
        while lane.jobs:
            read = self._as_read(lane.jobs[0])
            if read is None:
                break
            lane.jobs.popleft()
            lane.reads.append(read)
        head = lane.jobs[0] if lane.jobs else None
        # If appends and reads wait, groups of appends and steps of reads alternate.
        if isinstance(head, AppendJob) and not (lane.reads and lane.is_read_due):
            lane.is_read_due = True
            self._take_group(lane, ready)
        elif lane.reads:
            lane.is_read_due = False
            lane.is_busy = True
            ready.tasks.append(LaneTask(lane.partition, lane.reads[0]))
        else:
            self._begin_change(lane, ready)

    def _begin_change(self, lane: _Lane, ready: Ready) -> None:
        """Begin the job at the head of a lane, which is neither an append nor a read."""
        assert not lane.reads, f"partition {lane.partition}: a change between the steps of a read"
        job = lane.jobs.popleft()
        assert not isinstance(job, AppendJob | ReadJob)
        lane.is_busy = True
        ready.tasks.append(LaneTask(lane.partition, job))

    def _as_read(self, job: Job) -> LaneRead | None:
        """Return the read of a job that only reads records, None for any other job."""
        if isinstance(job, ReadJob):
            return LaneRead(job.begin())
        if isinstance(job, RequestJob) and is_read(job.request):
            return LaneRead(self._answer_steps(job))
        return None

    def _take_group(self, lane: _Lane, ready: Ready) -> None:
        """Move the appends at the head of a lane to a part of the round; answer refused ones.

        The group ends before a job that is neither an append nor a read. A read between two of
        these appends is moved to ``lane.reads`` and done after the group.
        """
        admitted: list[AppendJob] = []
        size = 0
        while lane.jobs:
            job = lane.jobs[0]
            if not isinstance(job, AppendJob):
                read = self._as_read(job)
                if read is None:
                    break
                lane.jobs.popleft()
                lane.reads.append(read)
                continue
            size += len(job.request.records.wire)
            if admitted and size > GROUP_LIMIT_BYTES:
                break
            lane.jobs.popleft()
            try:
                open_partition = self.directory.partition(job.request.partition)
                open_partition.admit(job.request, job.version)
                admitted.append(job)
            except RequestRefused as refused:
                ready.answers.append((job.reply, failure(job.request, refused)))
        if admitted:
            lane.is_busy = True
            open_partition = self.directory.partition(admitted[0].request.partition)
            staged = open_partition.log.stage([append.request.records for append in admitted])
            ready.parts.append(RoundPart(open_partition, admitted, staged))

    def _answer_steps(self, job: RequestJob) -> Steps[list[Answer]]:
        """Answer a request that only reads records, in steps."""
        answer: storage.Response
        try:
            open_partition = self.directory.partition(job.request.partition)
            answer = yield from open_partition.read_steps(job.request, job.version)
        except RequestRefused as refused:
            answer = failure(job.request, refused)
        return [(job.reply, answer)]

    def _response(self, job: RequestJob) -> storage.Response:
        """Execute a request that is neither an append nor a read; return its answer."""
        try:
            open_partition = self.directory.partition(job.request.partition)
            return open_partition.handle(job.request, job.version)
        except RequestRefused as refused:
            return failure(job.request, refused)
