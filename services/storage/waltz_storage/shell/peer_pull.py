"""Copy records of a peer into a partition that is switched off (spec/wire.md section 11).

An administrator decides which records are copied. It truncates the log before the copy, and sets
the low-water mark afterwards. The records go directly from one storage to the other. One request
works for a bounded time, so the copy ends soon after the last request. Touches the network, the log
of the program, and the disk through the engine.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from waltz.net import (
    ConnectionLost,
    DialFailed,
    Network,
    RemoteFailure,
    RpcConnection,
    TlsConfig,
    TlsConfigError,
    join_address,
)
from waltz.net.core.record_counts import ADMIN_LISTS_BOUNDED_SINCE, COPY_BYTES, RecordCounts
from waltz.protocol import STORAGE, admin, storage
from waltz.protocol.failures import RpcFailure
from waltz.protocol.records import RecordBatch
from waltz_storage.core.engine.engine import Arrival
from waltz_storage.core.engine.rounds import Answer, AppendJob, Reply
from waltz_storage.core.errors import RequestRefused

log = logging.getLogger(__name__)

_PULL_SECONDS = 1.0
"""The time after which a request is answered, although more records were requested."""
_PEER_SECONDS = 5.0
"""How long after its beginning a request waits for the peer: for the connection, and for records.

This is less than `waltz.admin.execution.COPY_PART_SECONDS`, which is how long the administrator
waits for the answer. So the administrator gets the reason of a failure even if the last append is
slow.
"""
_RECORDS_AT_ONCE = 4096
"""How many records one request to the peer reads at most."""
_MOST_COPIES = 64
"""For how many incomplete copies `PeerPulls` keeps the `RecordCounts`. No request says that an
administrator has given up a copy, so beyond this number the oldest ones are forgotten."""


class _PullRefused(Exception):
    """The records cannot be copied; the text says why."""


class PeerPulls:
    """Handles the requests to pull records.

    ``identity`` is the cluster's key and number of partitions. ``submit`` queues appends for the
    engine. ``deliver`` is thread-safe, and calls the callbacks of answers on the main event loop,
    which also calls `handle`. ``tls`` is for the connections to peers, which ``network`` opens.
    ``clock`` returns seconds.
    """

    def __init__(
        self,
        identity: tuple[uuid.UUID, int],
        submit: Callable[[Sequence[Arrival]], None],
        deliver: Callable[[list[Answer]], None],
        network: Network,
        tls: TlsConfig,
        clock: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._submit = submit
        self._deliver = deliver
        self._network = network
        self._tls = tls
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: dict[tuple[str, int, int], RecordCounts] = {}
        """How many records the next request to the peer may ask for, of each incomplete copy.

        That follows from the sizes of the records so far. The key is the peer's host and admin
        port, and the partition. The copy with the latest request is last.
        """

    def handle(self, request: admin.PullRecordsRequest, reply: Reply) -> None:
        """Begin a request; ``reply`` is called later with its answer."""
        task = asyncio.create_task(self._answer(request, reply), name="pull")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End all requests without an answer."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _answer(self, request: admin.PullRecordsRequest, reply: Reply) -> None:
        """Copy records; reply with the last copied id, or with the reason of a failure."""
        seq, source = request.seq_num, join_address(request.host, request.admin_port)
        answer: admin.Response
        try:
            last_id = await self._pull(request)
            answer = admin.PullRecordsResponse(seq, request.partition, last_id)
        except (
            ConnectionLost,
            DialFailed,
            RemoteFailure,
            TimeoutError,
            TlsConfigError,
        ) as problem:
            # A TimeoutError has no text.
            reason = str(problem) or f"no answer within {_PEER_SECONDS:g} s"
            text = f"the storage cannot read from {source}: {reason}"
            answer = admin.AdminFailureResponse(seq, RpcFailure(RequestRefused(text).message))
        except _PullRefused as refused:
            answer = admin.AdminFailureResponse(seq, RpcFailure(str(refused)))
        except Exception as error:
            # Without an answer, the administrator would wait until the connection ends.
            log.exception(
                "partition %d: records cannot be pulled from %s", request.partition, source
            )
            text = f"the storage cannot copy records from {source}: {error!r}; see its log"
            answer = admin.AdminFailureResponse(seq, RpcFailure(RequestRefused(text).message))
        reply(answer)

    async def _pull(self, request: admin.PullRecordsRequest) -> int:
        """Copy records until all are copied or the time is over; return the last copied id."""
        stop_at = self._clock() + _PULL_SECONDS
        give_up_at = asyncio.get_running_loop().time() + _PEER_SECONDS
        async with asyncio.timeout_at(give_up_at):
            peer = await RpcConnection.open_admin(
                (request.host, request.admin_port), self._tls, self._identity, self._network
            )
        try:
            last_id, counts = request.first_id - 1, self._counts_of(request)
            while last_id < request.last_id:
                async with asyncio.timeout_at(give_up_at):
                    records = await self._read(peer, request, last_id + 1, counts)
                counts.received(request.partition, records)
                await self._append(request, records)
                last_id += records.count
                if self._clock() >= stop_at:
                    break
            if last_id >= request.last_id:
                self._counts.pop(_copy_key(request), None)
            return last_id
        finally:
            peer.close()

    def _counts_of(self, request: admin.PullRecordsRequest) -> RecordCounts:
        """Return what earlier requests of the same copy have learned about the peer's records."""
        key = _copy_key(request)
        counts = self._counts.pop(key) if key in self._counts else RecordCounts()
        self._counts[key] = counts
        if len(self._counts) > _MOST_COPIES:
            oldest = next(iter(self._counts))
            del self._counts[oldest]
        return counts

    async def _read(
        self,
        peer: RpcConnection,
        request: admin.PullRecordsRequest,
        first_id: int,
        counts: RecordCounts,
    ) -> RecordBatch:
        """Return records of the peer from ``first_id`` on; at least one.

        Raises _PullRefused if the peer does not have it, and the errors of `RpcConnection.call`.
        """
        count = min(_RECORDS_AT_ONCE, request.last_id + 1 - first_id)
        count = counts.allowed(request.partition, count, COPY_BYTES)
        try:
            answer = await peer.call(
                lambda seq: admin.RecordListRequest(seq, request.partition, first_id, count),
                admin.RecordListResponse,
            )
        except (ConnectionLost, asyncio.CancelledError):
            # The list was perhaps too long for a message, or for the time: when that is over, the
            # caller's `timeout_at` cancels this coroutine.
            if peer.version < ADMIN_LISTS_BOUNDED_SINCE:
                counts.lost(request.partition, count)
            raise
        records: RecordBatch = answer.records
        if not 0 < records.count <= count or records.first_id() != first_id:
            text = (
                f"the peer does not hold transaction {first_id} of partition {request.partition}, "
                f"though it must have everything up to {request.last_id}; copy from another storage"
            )
            raise _PullRefused(RequestRefused(text).message)
        return records

    async def _append(self, request: admin.PullRecordsRequest, records: RecordBatch) -> None:
        """Append records as a server appends them to a partition that is switched off.

        Raises _PullRefused.
        """
        answered: asyncio.Future[storage.Response] = asyncio.get_running_loop().create_future()
        append = storage.AppendRequest(
            request.session_id, request.seq_num, request.partition, records, offline=True
        )
        reply = partial(self._deliver_answer, answered)
        job = AppendJob(append, max(STORAGE.versions), reply, self._clock())
        self._submit([Arrival(request.partition, job)])
        answer = await answered
        if isinstance(answer, storage.FailureResponse):
            raise _PullRefused(answer.failure.message)

    def _deliver_answer(
        self, answered: asyncio.Future[storage.Response], answer: storage.Response
    ) -> None:
        """Let the main event loop set the result of ``answered``.

        This is called on the event loop of the engine.
        """
        self._deliver([(partial(_resolve, answered), answer)])


def _copy_key(request: admin.PullRecordsRequest) -> tuple[str, int, int]:
    """Return the key of a request's copy in `PeerPulls._counts`."""
    return request.host, request.admin_port, request.partition


def _resolve(answered: asyncio.Future[storage.Response], answer: storage.Response) -> None:
    """Set the result of ``answered``, unless it is cancelled."""
    # The future is cancelled if the storage stops meanwhile.
    if not answered.done():
        answered.set_result(answer)
