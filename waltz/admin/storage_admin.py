"""Client of a storage's admin port. Touches the network.

Every request raises `waltz.net.RemoteFailure` with the storage's text if the storage refuses the
request, and `waltz.net.ConnectionLost` if the storage closes the connection. In version 0 of the
admin protocol, a storage closes the connection if the request names a partition that the storage
does not hold.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from waltz.admin.core.comparison import RangeSum
from waltz.admin.core.replicas import HeldPartition
from waltz.admin.core.storage_figures import gauge_value, whole_number
from waltz.metadata.core.formats import StoreParams
from waltz.net import (
    TCP,
    ConnectionLost,
    DialFailed,
    Network,
    RemoteFailure,
    RpcConnection,
    TlsConfig,
    split_address,
)
from waltz.net.core.record_counts import ADMIN_LISTS_BOUNDED_SINCE, LIST_BYTES, RecordCounts
from waltz.protocol import UnsupportedByPeer, admin
from waltz.protocol.checksums import as_signed
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import RecordBatch

_ALL_ANSWERED_SINCE = 1
"""The first version in which a storage answers every request."""


def admin_address(storage: str, admin_port: int) -> tuple[str, int]:
    """Return the host of ``storage``, which is ``host:port``, and the admin port.

    Raises DialFailed if ``storage`` is malformed.
    """
    return split_address(storage)[0], admin_port


class StorageAdmin:
    """A connection to one storage's admin port; an async context manager."""

    def __init__(
        self,
        connection: RpcConnection,
        connect: Callable[[], Awaitable[RpcConnection]] | None = None,
    ) -> None:
        self._connection = connection
        self._connect = connect
        """Opens another connection to the storage; None: a lost connection is not replaced."""
        self._counts = RecordCounts()
        """How many records a request may ask for in each partition; see `records`."""

    @classmethod
    async def open(
        cls,
        storage: str,
        admin_port: int,
        tls: TlsConfig,
        params: StoreParams,
        network: Network = TCP,
    ) -> StorageAdmin:
        """Connect to the admin port of ``storage``, which must have the cluster key in ``params``.

        Raises DialFailed, or RemoteFailure if the storage belongs to another cluster.
        """
        address = admin_address(storage, admin_port)
        identity = params.key, params.num_partitions
        connect = partial(RpcConnection.open_admin, address, tls, identity, network)
        return cls(await connect(), connect)

    async def __aenter__(self) -> StorageAdmin:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connect = None  # A request under way fails: it must not open another connection.
        self._connection.close()

    async def partitions(self) -> dict[int, bool]:
        """Return the partitions that the storage holds, each with whether it is switched on."""
        answer = await self._connection.call(
            admin.AssignedPartitionStatusRequest, admin.AssignedPartitionStatusResponse
        )
        return dict(answer.available)

    async def assign(self, partitions: Iterable[int]) -> None:
        """Create replicas of ``partitions``, from files on the storage's disk if it has them."""
        await self._set_assignment(partitions, assigned=True, delete_files=False)

    async def unassign(self, partitions: Iterable[int], *, delete_files: bool = False) -> None:
        """Drop ``partitions`` at the storage, and their files if ``delete_files``."""
        await self._set_assignment(partitions, assigned=False, delete_files=delete_files)

    async def unassign_unlisted(
        self, partitions: Iterable[int], *, delete_files: bool = False
    ) -> None:
        """Drop what the storage has of ``partitions``, which it does not list; it may be nothing.

        A storage that has nothing to drop of a partition refuses the request, after it has dropped
        the others. A storage of Waltz 0.13.2 closes the connection.
        """
        closes_connection = self._connection.version < _ALL_ANSWERED_SINCE
        try:
            await self.unassign(partitions, delete_files=delete_files)
        except RemoteFailure:
            pass
        except ConnectionLost:
            if not closes_connection:
                raise

    async def set_available(self, partitions: Iterable[int], *, available: bool) -> None:
        """Switch reading and writing of ``partitions`` on or off, by one request."""
        wanted = tuple(sorted(set(partitions)))
        await self._connection.call(
            lambda seq: admin.PartitionAvailableRequest(seq, wanted, available),
            admin.AdminSuccessResponse,
        )

    async def switch(self, partitions: Iterable[int], which: admin.Switch, *, on: bool) -> None:
        """Switch reading or writing of ``partitions`` on or off. Raises UnsupportedByPeer."""
        wanted = tuple(sorted(set(partitions)))
        await self._connection.call(
            lambda seq: admin.PartitionSwitchRequest(seq, wanted, which, on),
            admin.AdminSuccessResponse,
        )

    async def states(self) -> tuple[HeldPartition, ...]:
        """Return the state of all replicas that the storage holds.

        A storage of Waltz 0.13.2 needs several requests, and reports no sizes.
        """
        try:
            answer = await self._connection.call(
                admin.PartitionStatesRequest, admin.PartitionStatesResponse
            )
        except UnsupportedByPeer:
            return await self._states_one_by_one()
        return tuple(
            HeldPartition(
                state.partition,
                session_id=state.session_id,
                low_water_mark=state.low_water_mark,
                local_low_water_mark=state.local_low_water_mark,
                max_transaction_id=state.max_transaction_id,
                size_bytes=state.size_bytes,
                readable=state.readable,
                writable=state.writable,
            )
            for state in answer.states
        )

    async def session_info(self, partition: int) -> admin.LastSessionInfoResponse:
        """Return the store session and the marks that the storage has persisted."""
        answer: admin.LastSessionInfoResponse = await self._connection.call(
            lambda seq: admin.LastSessionInfoRequest(seq, partition),
            admin.LastSessionInfoResponse,
        )
        return answer

    async def records(
        self, partition: int, first_id: int, max_records: int, max_bytes: int | None = None
    ) -> RecordBatch:
        """Return at most ``max_records`` records from ``first_id`` on, committed or not.

        The result is shorter if the records are large, because a storage bounds the list in bytes.
        A storage of Waltz 0.13.2 has no such bound, so this method requests fewer records from it.
        If the connection to this storage is lost, the list may have been too long for a message:
        the connection is opened again, and a shorter list requested. With ``max_bytes``, the result
        has about this size at most, as soon as the size of the partition's records is known.
        """
        while True:
            is_bounded = self._connection.version >= ADMIN_LISTS_BOUNDED_SINCE
            count = max_records
            if max_bytes is not None or not is_bounded:
                count = self._counts.allowed(partition, max_records, max_bytes or LIST_BYTES)
            request = partial(
                admin.RecordListRequest,
                partition=partition,
                first_id=first_id,
                max_records=count,
            )
            try:
                answer = await self._connection.call(request, admin.RecordListResponse)
            except ConnectionLost as lost:
                if is_bounded:
                    raise
                self._counts.lost(partition, count)
                if count == 1:
                    raise
                await self._reopen(lost)
                continue
            records: RecordBatch = answer.records
            self._counts.received(partition, records)
            return records

    async def _reopen(self, lost: ConnectionLost) -> None:
        """Replace the connection, which ended with ``lost``. Raise ``lost`` if that fails."""
        if self._connect is None:
            raise lost
        try:
            self._connection = await self._connect()
        except (DialFailed, RemoteFailure):
            raise lost from None

    async def range_checksum(self, partition: int, first_id: int, last_id: int) -> RangeSum:
        """Return the checksum of the records from ``first_id`` to ``last_id``.

        The storage limits the work of one request: the result's ``last_id`` may be smaller. Raises
        UnsupportedByPeer.
        """
        # A `RangeSum` has an unsigned checksum; the messages, here and in `repair`, a signed one.
        answer = await self._connection.call(
            lambda seq: admin.RangeChecksumRequest(seq, partition, first_id, last_id),
            admin.RangeChecksumResponse,
        )
        return RangeSum(answer.last_id, answer.num_bytes, answer.checksum & 0xFFFF_FFFF)

    async def repair(self, partition: int, records: RecordBatch, checksum: int) -> None:
        """Replace damaged records by ``records`` of a peer, with the range checksum of the peer.

        Raises UnsupportedByPeer.
        """
        signed = as_signed(checksum)
        await self._connection.call(
            lambda seq: admin.RepairRecordsRequest(seq, partition, signed, records),
            admin.AdminSuccessResponse,
        )

    async def pull(
        self, partition: int, session_id: int, source: tuple[str, int], first_id: int, last_id: int
    ) -> int:
        """Let the storage copy records from the admin port ``source``; return the last copied id.

        The storage copies for about a second, so the result may be smaller than ``last_id``.
        ``session_id`` must be the session that this storage, not the source, has on its disk. If
        this session has changed since the caller observed it, the storage refuses the copy.
        ``first_id`` must be the id after the last one that the storage holds. The partition must be
        switched off at the storage. Raises UnsupportedByPeer.
        """
        answer = await self._connection.call(
            lambda seq: admin.PullRecordsRequest(
                seq, partition, session_id, *source, first_id, last_id
            ),
            admin.PullRecordsResponse,
        )
        copied_up_to: int = answer.last_id
        return copied_up_to

    async def metrics(self) -> dict[str, Any]:
        """Return the storage's metrics in their bean form (spec/behaviour.md section 13).

        Also an answer that is not a JSON object raises RemoteFailure.
        """
        answer = await self._connection.call(admin.MetricsRequest, admin.MetricsResponse)
        try:
            metrics = json.loads(answer.json)
        except ValueError as malformed:
            raise RemoteFailure(f"its metrics are not JSON: {malformed}") from malformed
        if not isinstance(metrics, dict):
            raise RemoteFailure("its metrics are not a JSON object")
        return metrics

    async def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        """Return the records that the storage found damaged and that are not repaired.

        A storage of a version before the scrubber does not know the request: the result is empty.
        """
        try:
            answer = await self._connection.call(
                admin.DamagedRecordsRequest, admin.DamagedRecordsResponse
            )
        except UnsupportedByPeer:
            return ()
        ranges: tuple[DamagedRange, ...] = answer.ranges
        return ranges

    async def _states_one_by_one(self) -> tuple[HeldPartition, ...]:
        """Do what `states` does, for a storage of Waltz 0.13.2: by a request for each replica."""
        metrics = await self.metrics()
        held = []
        for partition, available in sorted((await self.partitions()).items()):
            info = await self.session_info(partition)
            last_id = gauge_value(metrics, f"partition-{partition}.max-transaction-id")
            held.append(
                HeldPartition(
                    partition,
                    session_id=info.last_session_id,
                    low_water_mark=info.low_water_mark,
                    local_low_water_mark=info.local_low_water_mark,
                    max_transaction_id=whole_number(last_id),
                    size_bytes=None,
                    readable=available,
                    writable=available,
                )
            )
        return tuple(held)

    async def _set_assignment(
        self, partitions: Iterable[int], *, assigned: bool, delete_files: bool
    ) -> None:
        """Create replicas of ``partitions`` if ``assigned``, otherwise drop them."""
        wanted = tuple(sorted(set(partitions)))
        await self._connection.call(
            lambda seq: admin.PartitionAssignmentRequest(seq, wanted, assigned, delete_files),
            admin.AdminSuccessResponse,
        )
