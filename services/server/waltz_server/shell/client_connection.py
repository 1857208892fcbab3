"""Pass the messages of a client's connection to the partitions. Touches one connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, assert_never

from waltz.metadata.cluster import NoCluster
from waltz.metadata.core.access_rules import Right
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import UNRESOLVED
from waltz.metadata.core.policy import PolicyError
from waltz.metadata.store import StoreError
from waltz.net import FrameConnection, FrameHandler, decode_received
from waltz.protocol import MalformedMessage, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_ANSWERS_SINCE,
    APPEND_BATCH_SINCE,
    APPEND_BATCH_TYPE,
    APPEND_TYPE,
    MARK_WITHOUT_OWNERSHIP_SINCE,
)
from waltz.protocol.frames import MAX_RECORD_BYTES
from waltz.runtime.process import fail_stop_on_error
from waltz_server.core.access.denied_answers import (
    ReadingRequest,
    append_denials,
    batch_req_ids,
    request_denial,
)
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch, absent_answer
from waltz_server.core.appends.append_codec import decode_append, decode_batch
from waltz_server.core.partition import Partition
from waltz_server.core.peer import Peer
from waltz_server.core.reads.range_reads import NOT_HERE, refusal
from waltz_server.core.replication.log_tail import record_bytes
from waltz_server.shell.access_control import AccessControl, ConnectionAccess
from waltz_server.shell.hosted_partition import HostedPartition

log = logging.getLogger(__name__)

_APPENDING_TYPES = (APPEND_TYPE, ANSWERED_APPEND_TYPE, APPEND_BATCH_TYPE)


class PartitionHost(Protocol):
    """The functions of the server that a `ClientConnection` calls."""

    num_partitions: int

    def partition(self, partition: int) -> HostedPartition | None:
        """Return a partition, None if this server does not own it."""

    def partitions(self) -> list[HostedPartition]:
        """Return all partitions that this server owns."""

    def connected(self, peer: Peer, connection: FrameConnection) -> None:
        """Register a client's connection after its handshake."""

    def disconnected(self, peer: Peer) -> None:
        """Forget a client's connection, which is closed."""

    def pause_client(self, connection: FrameConnection, overloaded: int | None = None) -> None:
        """Stop reading from ``connection`` while partition ``overloaded`` has many open appends.

        Also stop while the client has a long queue of reads (`Peer.has_long_queue`), or appends
        faster than its quota (`Peer.unread_until`).
        """

    async def check_storages(self) -> dict[str, bool]:
        """Dial every storage that has partitions assigned; return for each whether it answered."""

    async def prefer(self, partitions: tuple[int, ...], *, preferred: bool) -> None:
        """Add ``partitions`` to those that the server prefers to own, or remove them.

        Raises PolicyError after the change; StoreError, NoCluster, MalformedMetadata instead of it.
        """


class ClientConnection(FrameHandler):
    """A connection on the port for clients.

    An append whose record has more than ``max_record_bytes`` is not accepted: no frame could carry
    the record to a storage or back, so the replicas would fail and the session would end.
    ``control`` has the access rules and quotas. If it is None, every request is allowed, without
    limits.
    """

    def __init__(
        self,
        host: PartitionHost,
        max_record_bytes: int = MAX_RECORD_BYTES,
        control: AccessControl | None = None,
    ) -> None:
        self._host = host
        self._control = control
        self._access: ConnectionAccess | None = None
        """The rights and the quota of the client; None without ``control``."""
        self._max_record_bytes = max_record_bytes
        self._connection: FrameConnection | None = None
        self._peer: Peer | None = None  # None before `ready`, and if `ready` closes it.
        self._tasks: set[asyncio.Task[None]] = set()

    def ready(self, connection: FrameConnection) -> None:
        """Register the connection with the server: its protocol version is known now."""
        self._connection = connection
        if self._control is not None:
            certificate = connection.peer_certificate
            self._access = ConnectionAccess(self._control, connection.peer, certificate)
            why_closed = self._access.enter()
            if why_closed is not None:
                log.warning("closing the connection of client %s: %s", connection.peer, why_closed)
                connection.close(why_closed)
                return
        self._peer = Peer(connection.version)
        self._host.connected(self._peer, connection)

    def received(self, bodies: list[bytes]) -> None:
        """Pass the messages of one chunk to their partitions, consecutive appends together."""
        assert self._peer is not None
        version = self._peer.version
        # Whether there are access rules, quotas, or both.
        must_check = self._control is not None and self._control.checks_appends
        appends: dict[int, list[Append]] = {}
        for body in bodies:
            type_byte = body[0]
            wants_answer = type_byte == ANSWERED_APPEND_TYPE and version >= APPEND_ANSWERS_SINCE
            if wants_answer or type_byte == APPEND_TYPE:
                partition, append = decode_received(decode_append, body, version)
                if wants_answer:
                    append.answer_to = self._peer
                if self._fits(partition, append):
                    appends.setdefault(partition, []).append(append)
                continue
            # The partitions get the messages in order: a flush waits for the appends before it.
            self._append(appends, must_check)
            appends = {}
            if self._ready_connection().closed:
                # An earlier message has closed the connection, and `lost` has removed the client
                # from the partitions. What a later message registers would stay, such as a feed.
                return
            if type_byte == APPEND_BATCH_TYPE and version >= APPEND_BATCH_SINCE:
                self._append_batch(body, must_check)
            else:
                self._dispatch(decode_received(cs.decode, body, version))
        self._append(appends, must_check)
        if must_check:
            self._count_bytes(bodies)

    def lost(self, reason: str) -> None:
        """Remove the client from the server and its partitions."""
        for task in self._tasks:
            task.cancel()
        if self._access is not None:
            self._access.leave()
        if self._peer is not None:
            self._host.disconnected(self._peer)
            for hosted in self._host.partitions():
                # `Partition.lost` adds no effects, so there are none to perform.
                hosted.core.lost(self._peer)

    def congested(self) -> None:
        """Let the feeds and reads of this client wait, because it does not read fast enough."""
        if self._peer is not None:
            self._peer.congested = True

    def writable(self) -> None:
        """Continue the feeds and reads of this client."""
        if self._peer is not None:
            self._peer.congested = False
            for hosted in self._host.partitions():
                hosted.core.writable(self._peer)
                hosted.perform_effects()

    def _append(self, appends: dict[int, list[Append]], must_check: bool) -> None:
        """Pass single appends to their partitions; drop those to a partition of another server.

        A dropped append has no answer. Its client learns from the answer to its next flush that the
        append is not in the log. With ``must_check``, appends are denied without the right to them.
        """
        assert self._peer is not None
        if must_check:
            appends = self._deny_without_right(appends)
        for partition, singles in appends.items():
            hosted = self._host.partition(partition)
            if hosted is not None:
                hosted.core.append(self._peer, singles)
                hosted.perform_effects()
                if hosted.core.overloaded:
                    self._host.pause_client(self._ready_connection(), partition)

    def _deny_without_right(self, appends: dict[int, list[Append]]) -> dict[int, list[Append]]:
        """Deny the appends for which the client has no right; return those that it may make.

        Appends to a partition of another server are dropped without a denial: that server decides
        when the client appends again.
        """
        permitted: dict[int, list[Append]] = {}
        for partition, singles in appends.items():
            if self._host.partition(partition) is None:
                continue
            denial = self._denial(Right.APPEND, partition)
            if denial is None:
                permitted[partition] = singles
            else:
                self._deny_appends((ReqId.decode(single.req_id) for single in singles), denial)
        return permitted

    def _append_batch(self, body: bytes, must_check: bool) -> None:
        """Pass a batch to its partition, or answer why none of its appends is in the log."""
        assert self._peer is not None
        req_id, appends = decode_received(decode_batch, body)
        hosted = self._host.partition(req_id.partition)
        if hosted is None or not all(self._fits(req_id.partition, a) for a in appends):
            self._ready_connection().send(absent_answer(self._peer, req_id, len(appends)).frames)
            return
        denial = self._denial(Right.APPEND, req_id.partition) if must_check else None
        if denial is not None:
            self._deny_appends(batch_req_ids(req_id, len(appends)), denial)
            return
        hosted.core.append_batch(AppendBatch(self._peer, req_id, appends))
        hosted.perform_effects()
        if hosted.core.overloaded:
            self._host.pause_client(self._ready_connection(), req_id.partition)

    def _fits(self, partition: int, append: Append) -> bool:
        """Return whether the storages can store ``append``; if not, write a line to the log.

        A single append that does not fit has no answer. Its client learns from the answer to its
        next flush that the append is not in the log.
        """
        size = record_bytes(append)
        if size <= self._max_record_bytes:
            return True
        log.warning(
            "partition %d: append of client %d (%s) refused: its record has %d bytes, at most %d "
            "can be stored",
            partition,
            append.client_id,
            self._ready_connection().peer,
            size,
            self._max_record_bytes,
        )
        return False

    def _dispatch(self, message: cs.Message) -> None:
        """Answer a message that is no append, or pass it to its partition."""
        assert self._peer is not None
        # Except appends, every request to a partition is a ReadingRequest.
        if not isinstance(message, ReadingRequest):
            self._answer_about_server(message)
            return
        partition = message.req_id.partition
        hosted = self._host.partition(partition)
        if hosted is None:
            self._answer_without_partition(self._peer, message)
        elif (denial := self._denial(Right.READ, partition)) is not None:
            self._send(request_denial(message, denial, self._peer.version))
        else:
            _pass_on(hosted.core, self._peer, message)
            hosted.perform_effects()
            if self._peer.has_long_queue:
                self._host.pause_client(self._ready_connection())

    def _denial(self, right: Right, partition: int) -> str | None:
        """See `ConnectionAccess.denial`; None also if the server has no access control."""
        return None if self._access is None else self._access.denial(right, partition)

    def _deny_appends(self, req_ids: Iterable[ReqId], denial: str) -> None:
        assert self._peer is not None
        for answer in append_denials(req_ids, denial, self._peer.version):
            self._send(answer)

    def _count_bytes(self, bodies: list[bytes]) -> None:
        """Count the bytes of a chunk's appends; stop reading from a client above its quota."""
        assert self._access is not None
        assert self._peer is not None
        size = sum(len(body) for body in bodies if body[0] in _APPENDING_TYPES)
        until = self._access.appended(size) if size else 0.0
        if until:
            self._peer.unread_until = until
            self._host.pause_client(self._ready_connection())

    def _answer_without_partition(self, peer: Peer, message: ReadingRequest) -> None:
        """Answer a request to a partition that this server does not own."""
        match message:
            case cs.MountRequest(req_id):
                self._send(cs.MountResponse(req_id, cs.MountState.NOT_READY))
            case cs.TransactionDataRequest(req_id, transaction_id):
                error = "partition not ready"
                self._send(cs.TransactionDataResponse(req_id, transaction_id, None, error=error))
            case cs.HighWaterMarkRequest(req_id):
                if peer.version >= MARK_WITHOUT_OWNERSHIP_SINCE:
                    self._send(cs.HighWaterMarkResponse(req_id, UNRESOLVED))
            case cs.RecordsRequest() | cs.HeadersRequest():
                self._ready_connection().send(refusal(peer, message, NOT_HERE, UNRESOLVED).frames)
            case cs.FeedRequest() | cs.FlushRequest():
                pass  # The protocol has no answer that refuses these requests.
            case _:
                assert_never(message)

    def _answer_about_server(self, message: cs.Message) -> None:
        """Answer a request about the server itself; other messages raise MalformedMessage."""
        match message:
            case cs.ServerPartitionsAssignmentRequest(req_id):
                ids = tuple(hosted.core.id for hosted in self._host.partitions())
                self._send(cs.ServerPartitionsAssignmentResponse(req_id, ids))
            case cs.ServerPartitionsHealthStatRequest(req_id):
                health = {h.core.id: h.core.store.healthy for h in self._host.partitions()}
                self._send(cs.ServerPartitionsHealthStatResponse(req_id, health))
            case cs.CheckStorageConnectivityRequest(req_id):
                self._spawn(self._check_storages(req_id))
            case cs.AddPreferredPartitionRequest(req_id, partitions):
                self._prefer(req_id, partitions, preferred=True)
            case cs.RemovePreferredPartitionRequest(req_id, partitions):
                self._prefer(req_id, partitions, preferred=False)
            case _:
                raise MalformedMessage(f"{type(message).__name__} is not for a server")

    def _prefer(self, req_id: ReqId, partitions: tuple[int, ...], *, preferred: bool) -> None:
        """Begin a change of the preferred partitions, or answer that it is refused.

        ``preferred`` says whether ``partitions`` are added or removed. Raises MalformedMessage.
        """
        if not partitions:
            raise MalformedMessage("a change of preferred partitions that names no partition")
        all_exist = min(partitions) >= 0 and max(partitions) < self._host.num_partitions
        if all_exist and all(self._denial(Right.ADMINISTER, p) is None for p in partitions):
            self._spawn(self._change_preference(req_id, partitions, preferred))
        else:
            self._send(_preference_answer(req_id, preferred, result=False))

    async def _change_preference(
        self, req_id: ReqId, partitions: tuple[int, ...], preferred: bool
    ) -> None:
        verb, named = ("add" if preferred else "remove"), ", ".join(map(str, partitions))
        sender = self._ready_connection().peer_identity
        log.info("administrative change by %s: %s preferred partitions %s", sender, verb, named)
        is_changed = True
        try:
            await self._host.prefer(partitions, preferred=preferred)
        except PolicyError as error:
            log.warning(
                "preferred partitions %s: %s; cannot compute the assignment now, so no partition "
                "moves until the servers of the cluster change: %s",
                "added" if preferred else "removed",
                named,
                error,
            )
        except (MalformedMetadata, NoCluster, StoreError) as error:
            # The server goes on: its partitions do not need these znodes.
            log.error("preferred partitions not changed, refusing the request: %s", error)
            is_changed = False
        self._send(_preference_answer(req_id, preferred, result=is_changed))

    async def _check_storages(self, req_id: ReqId) -> None:
        self._send(cs.CheckStorageConnectivityResponse(req_id, await self._host.check_storages()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = fail_stop_on_error(asyncio.get_running_loop().create_task(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ready_connection(self) -> FrameConnection:
        assert self._connection is not None
        return self._connection

    def _send(self, message: cs.Message) -> None:
        assert self._peer is not None
        self._ready_connection().send(cs.encode(message, self._peer.version))


def _pass_on(core: Partition, peer: Peer, message: ReadingRequest) -> None:
    match message:
        case cs.MountRequest():
            core.mount(peer, message)
        case cs.FeedRequest():
            core.feed(peer, message)
        case cs.FlushRequest():
            core.flush(peer, message)
        case cs.HighWaterMarkRequest():
            core.read_mark(peer, message)
        case cs.TransactionDataRequest():
            core.read_data(peer, message)
        case cs.RecordsRequest() | cs.HeadersRequest():
            core.read_range(peer, message)
        case _:
            assert_never(message)


def _preference_answer(
    req_id: ReqId, preferred: bool, *, result: bool
) -> cs.AddPreferredPartitionResponse | cs.RemovePreferredPartitionResponse:
    if preferred:
        return cs.AddPreferredPartitionResponse(req_id, result)
    return cs.RemovePreferredPartitionResponse(req_id, result)
