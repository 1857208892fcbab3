"""What the admin port asks for: assignments, switches, status, records (spec/wire.md section 7).

Each request becomes tasks in the lanes of its partitions, behind what waits there; its answer is
given when all of them are done. A request that cannot be done at all, as one for a partition that
no cluster of this size has, is answered since version 1. Touches disk through the directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from waltz.protocol import admin
from waltz.protocol.failures import RpcFailure
from waltz_storage.core.directory import StorageDirectory
from waltz_storage.core.engine import Arrival, Deliver, Reply
from waltz_storage.core.errors import RequestRefused, UnknownPartition
from waltz_storage.core.range_checksum import RangeChecksum

_ALL_ANSWERED = 1
"""Since this version every request is answered."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which request it is, the version that it came in, and where its answer goes."""

    seq: int
    version: int
    reply: Reply

    def refusal(self, reason: str) -> admin.Response | None:
        """Return the answer to what cannot be done at all: version 0 has none."""
        if self.version < _ALL_ANSWERED:
            return None
        return admin.AdminFailureResponse(self.seq, RpcFailure(reason))


class AdminDesk:
    """Does admin requests. An answer of None means: close the connection without a word."""

    def __init__(
        self,
        directory: StorageDirectory,
        submit: Callable[[Sequence[Arrival]], None],
        deliver: Deliver,
    ) -> None:
        self._directory = directory
        self._submit = submit
        self._deliver = deliver

    def handle(self, request: admin.Request, version: int, reply: Reply) -> None:
        """Begin a request that came in ``version``; ``reply`` gets its answer later."""
        asked = _Asked(request.seq_num, version, reply)
        try:
            self._begin(request, asked)
        except UnknownPartition as unknown:
            self._deliver([(reply, asked.refusal(str(unknown)))])

    def _begin(self, request: admin.Request, asked: _Asked) -> None:
        directory, reply = self._directory, asked.reply
        match request:
            case admin.PartitionAvailableRequest(_, partitions, available):
                switch = partial(directory.set_available, available=available)
                self._change(partitions, switch, asked)
            case admin.PartitionSwitchRequest(_, partitions, which, on):
                self._change(partitions, partial(directory.set_switch, switch=which, on=on), asked)
            case admin.PartitionAssignmentRequest(_, partitions, True, _):
                self._change(partitions, directory.assign, asked)
            case admin.PartitionAssignmentRequest(_, partitions, False, delete):
                self._change(partitions, partial(directory.unassign, delete_files=delete), asked)
            case admin.RecordListRequest():
                self._each((request.partition,), lambda _: self._records(request), asked)
            case admin.LastSessionInfoRequest():
                self._each((request.partition,), lambda _: self._session(request), asked)
            case admin.RangeChecksumRequest():
                self._checksum(request, RangeChecksum(request), asked)
            case admin.AssignedPartitionStatusRequest():
                status = admin.AssignedPartitionStatusResponse(asked.seq, directory.status())
                self._deliver([(reply, status)])
            case admin.PartitionStatesRequest():
                states = admin.PartitionStatesResponse(asked.seq, directory.states())
                self._deliver([(reply, states)])
            case _:
                refusal = asked.refusal(f"{type(request).__name__} is no request")
                self._deliver([(reply, refusal)])

    def _change(
        self, partitions: Sequence[int], change: Callable[[int], None], asked: _Asked
    ) -> None:
        """Do ``change`` for each partition; nothing is changed if one of them cannot be."""
        self._directory.check_known(partitions)
        done = admin.AdminSuccessResponse(asked.seq)
        if not partitions:
            self._deliver([(asked.reply, done)])
            return

        def work(partition: int) -> admin.Response:
            change(partition)
            return done

        self._each(partitions, work, asked)

    def _each(
        self, partitions: Sequence[int], work: Callable[[int], admin.Response], asked: _Asked
    ) -> None:
        """Do ``work`` for each partition in its lane; answer with the worst that it returns."""
        answer = _Answer(len(partitions), lambda found: self._deliver([(asked.reply, found)]))

        def task(partition: int) -> None:
            try:
                answer.add(work(partition))
            except RequestRefused as refused:
                answer.add(admin.AdminFailureResponse(asked.seq, RpcFailure(refused.message)))
            except UnknownPartition as unknown:
                answer.add(asked.refusal(str(unknown)))

        self._submit([Arrival(p, partial(task, p)) for p in partitions])

    def _checksum(
        self, request: admin.RangeChecksumRequest, work: RangeChecksum, asked: _Asked
    ) -> None:
        """Do a slice; the next one goes to the end of the lane, behind what has arrived."""

        def task() -> None:
            answer: admin.Response | None
            try:
                answer = work.advance(self._directory.partition(request.partition))
            except RequestRefused as refused:
                answer = admin.AdminFailureResponse(asked.seq, RpcFailure(refused.message))
            if answer is None:
                self._submit([Arrival(request.partition, task)])
            else:
                self._deliver([(asked.reply, answer)])

        self._submit([Arrival(request.partition, task)])

    def _records(self, request: admin.RecordListRequest) -> admin.Response:
        opened = self._directory.partition(request.partition)
        records = opened.records(request.first_id, request.max_records)
        return admin.RecordListResponse(request.seq_num, request.partition, records)

    def _session(self, request: admin.LastSessionInfoRequest) -> admin.Response:
        info = self._directory.session_info(request.partition)
        return admin.LastSessionInfoResponse(
            request.seq_num,
            request.partition,
            info.session_id,
            info.low_water_mark,
            info.local_low_water_mark,
        )


class _Answer:
    """Gathers the outcomes of ``count`` tasks; the worst of them is the answer."""

    def __init__(self, count: int, give: Callable[[admin.Response | None], None]) -> None:
        self._left = count
        self._give = give
        self._found: list[admin.Response | None] = []
        self._lock = threading.Lock()

    def add(self, outcome: admin.Response | None) -> None:
        """Add one outcome; the last one gives the answer."""
        with self._lock:
            self._found.append(outcome)
            complete = len(self._found) == self._left
        if complete:
            self._give(max(self._found, key=_badness))


def _badness(outcome: admin.Response | None) -> int:
    return 2 if outcome is None else int(isinstance(outcome, admin.AdminFailureResponse))
