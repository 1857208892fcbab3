"""Handle the requests of the admin port: assignments, status, records (spec/wire.md section 7).

The engine has a *lane* for each partition, which does the jobs of the partition one after the other
(see `core.engine.engine`). How a request is handled depends on its kind:

* Most requests become one job in the lane of each of their partitions, and are answered when all
  these jobs are done.
* A checksum of a range takes several jobs, one after the other.
* A list of records is a read in steps.
* A request for the state of all partitions, or for the damaged records, is answered at once.
* A repair of records also changes which records the scrubber knows to be damaged.

Version 0 of the protocol has no answer to a request that cannot be done at all, such as a request
for a partition that does not exist; version 1 has one. Touches the disk through the storage
directory, and a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from waltz.protocol import admin
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.failures import RpcFailure
from waltz_storage.core.engine.engine import Arrival, ReadJob
from waltz_storage.core.engine.rounds import Answer, Reply
from waltz_storage.core.errors import RequestRefused, UnknownPartition
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.log.log_reads import Steps
from waltz_storage.core.partitions.range_checksum import RangeChecksum
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.scrubber import Scrubber

_ALL_ANSWERED_SINCE = 1
"""The first version in which every request is answered."""

_MAX_RANGES = 10_000
"""An answer has at most this many damaged ranges. A disk with more of them is lost."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """The number of a request, its protocol version, and the callback for its answer."""

    seq: int
    version: int
    reply: Reply

    def refusal(self, reason: str) -> admin.Response | None:
        """Return the answer to a request that cannot be done at all, None in version 0."""
        if self.version < _ALL_ANSWERED_SINCE:
            return None
        return admin.AdminFailureResponse(self.seq, RpcFailure(reason))


class AdminHandler:
    """Handles admin requests.

    ``submit`` queues jobs and reads, whose answers are delivered on the main event loop.
    ``deliver`` passes answers to that event loop, from any thread.

    The answer None means that the request has no answer in its version of the protocol. It closes
    the connection, as in Waltz 0.13.2.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        submit: Callable[[Sequence[Arrival]], None],
        deliver: Callable[[list[Answer]], None],
        scrubber: Scrubber,
    ) -> None:
        self._directory = directory
        self._scrubber = scrubber
        self._submit = submit
        self._deliver = deliver

    def handle(self, request: admin.Request, version: int, reply: Reply) -> None:
        """Begin a request of protocol ``version``; ``reply`` is called later with its answer.

        If it has no answer (see `AdminHandler`), ``reply`` is called with None.
        """
        origin = _Origin(request.seq_num, version, reply)
        try:
            self._begin(request, origin)
        except UnknownPartition as unknown:
            self._deliver([(reply, origin.refusal(str(unknown)))])

    def _begin(self, request: admin.Request, origin: _Origin) -> None:
        """Begin a request; raises UnknownPartition before anything is changed."""
        directory, reply = self._directory, origin.reply
        match request:
            case admin.PartitionAvailableRequest(_, partitions, available):
                switch = partial(directory.set_available, available=available)
                self._change(partitions, switch, origin)
            case admin.PartitionSwitchRequest(_, partitions, which, on):
                self._change(partitions, partial(directory.set_switch, switch=which, on=on), origin)
            case admin.PartitionAssignmentRequest(_, partitions, assigned=True):
                origin = self._noting_openings(partitions, origin)
                self._change(partitions, directory.assign, origin)
            case admin.PartitionAssignmentRequest(
                _, partitions, assigned=False, delete_files=delete
            ):
                origin = self._noting_openings(partitions, origin)
                self._change(partitions, partial(directory.unassign, delete_files=delete), origin)
            case admin.RecordListRequest():
                self._read_records(request, origin)
            case admin.LastSessionInfoRequest():
                self._run_in_lanes(
                    (request.partition,), work=lambda _: self._session_info(request), origin=origin
                )
            case admin.RangeChecksumRequest():
                self._range_checksum(request, RangeChecksum(request), origin)
            case admin.AssignedPartitionStatusRequest():
                status = admin.AssignedPartitionStatusResponse(origin.seq, directory.status())
                self._deliver([(reply, status)])
            case admin.PartitionStatesRequest():
                states = admin.PartitionStatesResponse(origin.seq, directory.states())
                self._deliver([(reply, states)])
            case admin.RepairRecordsRequest():
                self._repair(request, origin)
            case admin.DamagedRecordsRequest():
                damaged = admin.DamagedRecordsResponse(origin.seq, self._damaged())
                self._deliver([(reply, damaged)])
            case _:
                refusal = origin.refusal(f"{type(request).__name__} is not a request")
                self._deliver([(reply, refusal)])

    def _noting_openings(self, partitions: Sequence[int], origin: _Origin) -> _Origin:
        """Return ``origin`` with a reply that first notes the damage in the changed partitions.

        The opening of a log finds damaged records, which are noted. Those of a closed log are
        forgotten. If a log is open before and after the change, it may still have been closed and
        opened again: requests to unassign and to assign a partition can follow each other before
        the first of them is executed. So the open partitions themselves are compared: an opening
        makes a new object.
        """
        findings, open_partitions = self._scrubber.findings, self._directory.partitions
        before = {partition: open_partitions.get(partition) for partition in partitions}

        def reply(answer: object) -> None:
            for partition in partitions:
                open_partition = open_partitions.get(partition)
                if open_partition is None:
                    findings.forget(partition)
                elif open_partition is not before[partition]:
                    findings.note_opening(partition, open_partition.log.damaged_at_opening)
            origin.reply(answer)

        return replace(origin, reply=reply)

    def _damaged(self) -> tuple[DamagedRange, ...]:
        """Return the damaged ranges of all partitions, up to `_MAX_RANGES`."""
        damaged = (
            DamagedRange(partition, ids.first_id, ids.last_id)
            for partition, ranges in sorted(self._scrubber.findings.ranges.items())
            for ids in ranges
        )
        return tuple(islice(damaged, _MAX_RANGES))

    def _repair(self, request: admin.RepairRecordsRequest, origin: _Origin) -> None:
        """Repair records in one job: no read or append of the partition is under way meanwhile.

        Only the thread of the main event loop may use the findings of the scrubber. Answers are
        delivered on that thread. So the job returns the checks of the repaired records as an
        answer. The callback of this answer notes the checks and then sends the real answer.
        """
        partition = request.partition

        def note_and_reply(checks: Sequence[CheckedRecords]) -> None:
            for checked in checks:
                self._scrubber.findings.note_repair(partition, checked)
            origin.reply(_repair_answer(request, checks))

        def job() -> list[Answer]:
            try:
                open_partition = self._directory.partition(partition)
                # The message has the checksum as a signed number of 32 bits.
                checks = open_partition.repair(request.records, request.checksum & 0xFFFF_FFFF)
            except RequestRefused as refused:
                failure = admin.AdminFailureResponse(origin.seq, RpcFailure(refused.message))
                return [(origin.reply, failure)]
            return [(note_and_reply, checks)]

        self._submit([Arrival(partition, job)])

    def _change(
        self, partitions: Sequence[int], change: Callable[[int], None], origin: _Origin
    ) -> None:
        """Call ``change`` for each partition; change nothing if one partition does not exist."""
        self._directory.check_known(partitions)
        success = admin.AdminSuccessResponse(origin.seq)
        if not partitions:
            self._deliver([(origin.reply, success)])
            return

        def work(partition: int) -> admin.Response:
            change(partition)
            return success

        self._run_in_lanes(partitions, work, origin)

    def _run_in_lanes(
        self, partitions: Sequence[int], work: Callable[[int], admin.Response], origin: _Origin
    ) -> None:
        """Call ``work`` for each partition, in its lane; answer with the worst result.

        The possible results, from the best to the worst: success, failure, no answer (None).
        """
        results = _Results(len(partitions), origin.reply)

        def job(partition: int) -> list[Answer]:
            try:
                return results.add(work(partition))
            except RequestRefused as refused:
                failure = admin.AdminFailureResponse(origin.seq, RpcFailure(refused.message))
                return results.add(failure)
            except UnknownPartition as unknown:
                return results.add(origin.refusal(str(unknown)))

        self._submit([Arrival(p, partial(job, p)) for p in partitions])

    def _range_checksum(
        self, request: admin.RangeChecksumRequest, work: RangeChecksum, origin: _Origin
    ) -> None:
        """Read one slice per job, so that other jobs of the partition are done between them."""

        def job() -> list[Answer]:
            answer: admin.Response | None
            try:
                answer = work.advance(self._directory.partition(request.partition))
            except RequestRefused as refused:
                answer = admin.AdminFailureResponse(origin.seq, RpcFailure(refused.message))
            if answer is not None:
                return [(origin.reply, answer)]
            self._submit([Arrival(request.partition, job)])
            return []

        self._submit([Arrival(request.partition, job)])

    def _read_records(self, request: admin.RecordListRequest, origin: _Origin) -> None:
        """Read records in steps, between which the partition takes appends."""

        def steps() -> Steps[list[Answer]]:
            answer: admin.Response
            try:
                open_partition = self._directory.partition(request.partition)
                records = yield from open_partition.record_steps(
                    request.first_id, request.max_records
                )
                answer = admin.RecordListResponse(request.seq_num, request.partition, records)
            except RequestRefused as refused:
                answer = admin.AdminFailureResponse(origin.seq, RpcFailure(refused.message))
            return [(origin.reply, answer)]

        self._submit([Arrival(request.partition, ReadJob(steps))])

    def _session_info(self, request: admin.LastSessionInfoRequest) -> admin.Response:
        info = self._directory.session_info(request.partition)
        return admin.LastSessionInfoResponse(
            request.seq_num,
            request.partition,
            info.session_id,
            info.low_water_mark,
            info.local_low_water_mark,
        )


def _repair_answer(
    request: admin.RepairRecordsRequest, checks: Sequence[CheckedRecords]
) -> admin.Response:
    """Return the answer to a request to repair records, by the checks that followed the repair."""
    first_id = request.records.first_id()
    repaired = range(first_id, first_id + request.records.count)
    # A check may cover records beyond the repaired ones.
    damaged = [record for checked in checks for record in checked.damaged if record in repaired]
    if not damaged:
        return admin.AdminSuccessResponse(request.seq_num)
    refused = RequestRefused(
        f"record {damaged[0]} is still damaged after it was written again; replace the replica as "
        "docs/faults.md describes"
    )
    return admin.AdminFailureResponse(request.seq_num, RpcFailure(refused.message))


class _Results:
    """Collects the results of ``count`` jobs; the answer is the worst of them.

    Thread-safe, because jobs of several partitions may run on several threads.
    """

    def __init__(self, count: int, reply: Reply) -> None:
        self._count = count
        self._reply = reply
        self._results: list[admin.Response | None] = []
        self._lock = threading.Lock()

    def add(self, result: admin.Response | None) -> list[Answer]:
        """Add one result; return the answer if all results are there, else an empty list."""
        with self._lock:
            self._results.append(result)
            is_complete = len(self._results) == self._count
        if not is_complete:
            return []
        worst = max(self._results, key=_severity)
        return [(self._reply, worst)]


def _severity(result: admin.Response | None) -> int:
    """Return 0 for a success, 1 for a failure, 2 for no answer."""
    if result is None:
        return 2
    return 1 if isinstance(result, admin.AdminFailureResponse) else 0
