"""What the admin port asks for: assignments, switches, status, records (wire.md section 7).

Each request becomes tasks in the lanes of its partitions, behind what waits there; its answer is
given when all of them are done. Touches disk through the directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from waltz.protocol import admin
from waltz.protocol.failures import RpcFailure
from waltz_storage.directory import StorageDirectory
from waltz_storage.engine import Arrival, Deliver, Reply
from waltz_storage.errors import RequestRefused, UnknownPartition


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

    def handle(self, request: admin.Request, reply: Reply) -> None:
        """Begin a request; ``reply`` gets its answer later."""
        try:
            self._begin(request, reply)
        except UnknownPartition:
            self._deliver([(reply, None)])

    def _begin(self, request: admin.Request, reply: Reply) -> None:
        directory, seq = self._directory, request.seq_num
        match request:
            case admin.PartitionAvailableRequest(_, partitions, available):
                directory.check_known(partitions)
                done = admin.AdminSuccessResponse(seq)
                switch = partial(_switch, directory, done, available=available)
                self._each(partitions, switch, seq, reply)
            case admin.PartitionAssignmentRequest(_, partitions, True, _):
                directory.check_known(partitions)
                done = admin.AdminSuccessResponse(seq)
                self._each(partitions, partial(_assign, directory, done), seq, reply)
            case admin.PartitionAssignmentRequest(_, partitions, False, delete):
                directory.check_known(partitions)
                done = admin.AdminSuccessResponse(seq)
                drop = partial(_unassign, directory, done, delete_files=delete)
                self._each(partitions, drop, seq, reply)
            case admin.RecordListRequest():
                self._each((request.partition,), lambda _: self._records(request), seq, reply)
            case admin.LastSessionInfoRequest():
                self._each((request.partition,), lambda _: self._session(request), seq, reply)
            case admin.AssignedPartitionStatusRequest():
                status = admin.AssignedPartitionStatusResponse(seq, directory.status())
                self._deliver([(reply, status)])
            case _:
                self._deliver([(reply, None)])

    def _each(
        self, partitions: Sequence[int], work: Callable[[int], Any], seq: int, reply: Reply
    ) -> None:
        """Do ``work`` for each partition in its lane; answer with what the last one returns."""
        if not partitions:
            self._deliver([(reply, admin.AdminSuccessResponse(seq))])
            return
        answer = _Answer(len(partitions), lambda found: self._deliver([(reply, found)]))

        def task(partition: int) -> None:
            try:
                answer.add(work(partition))
            except RequestRefused as refused:
                answer.add(admin.AdminFailureResponse(seq, RpcFailure(refused.message)))
            except UnknownPartition:
                answer.add(None)

        self._submit([Arrival(p, partial(task, p)) for p in partitions])

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


def _switch(
    directory: StorageDirectory, done: admin.Response, partition: int, *, available: bool
) -> admin.Response:
    directory.set_available(partition, available)
    return done


def _assign(directory: StorageDirectory, done: admin.Response, partition: int) -> admin.Response:
    directory.assign(partition)
    return done


def _unassign(
    directory: StorageDirectory, done: admin.Response, partition: int, *, delete_files: bool
) -> admin.Response:
    directory.unassign(partition, delete_files=delete_files)
    return done


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
