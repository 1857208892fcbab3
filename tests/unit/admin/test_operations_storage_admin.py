"""Test the requests of tools to the admin ports of new and of old storages."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import pytest

from waltz.admin import HeldPartition, StorageAdmin
from waltz.admin.core.steps import DropReplicas
from waltz.admin.execution import perform_at_storage
from waltz.metadata.core.formats import StoreParams
from waltz.net import (
    PLAINTEXT,
    ConnectionLost,
    DialFailed,
    FrameConnection,
    FrameHandler,
    Listener,
    RemoteFailure,
    RpcConnection,
)
from waltz.protocol import ADMIN, UnsupportedByPeer, admin
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.failures import RpcFailure
from waltz.protocol.records import Record, RecordBatch, ReqId

PARAMS = StoreParams(uuid.UUID(int=3), 4)
RECORDS = RecordBatch.of([Record(7, ReqId(1, 2, 1, 7), 0, b"x", 7)])
GAUGES: dict[str, dict[str, Any]] = {
    "gauges": {"waltz-storage.partition-1.max-transaction-id": {"value": 12}}
}


class AdminPort(FrameHandler):
    """A storage that holds partitions 1, switched on, and 2, switched off; it records requests."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.most_records = 1 << 30
        """A request for more records ends the connection, like a list that is too long."""
        self.dropped: list[int] = []
        self.droppable = {1, 2}
        self.closes_on_drop = False
        """Whether every version closes the connection when a partition cannot be dropped."""
        self._connection: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        self._connection = connection

    def received(self, bodies: list[bytes]) -> None:
        assert self._connection is not None
        version = self._connection.version
        for body in bodies:
            request = admin.decode(body, version)
            if not isinstance(request, admin.AdminOpenRequest):
                self.requests.append(request)
            if isinstance(request, admin.RecordListRequest) and (
                request.max_records > self.most_records
            ):
                self._connection.close()
                return
            if isinstance(request, admin.PartitionAssignmentRequest):
                self.dropped += (held := [p for p in request.partitions if p in self.droppable])
                if len(held) < len(request.partitions):
                    self._refuse(request.seq_num)
                    continue
            self._connection.send(admin.encode(self._answer(request), version))

    def lost(self, reason: str) -> None:
        pass

    def _refuse(self, seq: int) -> None:
        """Refuse to drop a partition that the storage does not hold."""
        assert self._connection is not None
        version = self._connection.version
        if version == 0 or self.closes_on_drop:
            self._connection.close()
        else:
            failure = admin.AdminFailureResponse(seq, RpcFailure("partition 3 is not assigned"))
            self._connection.send(admin.encode(failure, version))

    def _answer(self, request: admin.Message) -> admin.Response:
        match request:
            case admin.AssignedPartitionStatusRequest(seq):
                return admin.AssignedPartitionStatusResponse(seq, {2: False, 1: True})
            case admin.LastSessionInfoRequest(seq, partition):
                return admin.LastSessionInfoResponse(seq, partition, 7, 5, 4)
            case admin.MetricsRequest(seq):
                return admin.MetricsResponse(seq, json.dumps(GAUGES))
            case admin.PartitionStatesRequest(seq):
                state = admin.PartitionState(1, 7, 5, 4, 12, 99, readable=True, writable=False)
                return admin.PartitionStatesResponse(seq, (state,))
            case admin.DamagedRecordsRequest(seq):
                return admin.DamagedRecordsResponse(seq, (DamagedRange(1, 3, 4),))
            case admin.RecordListRequest(seq, partition):
                return admin.RecordListResponse(seq, partition, RECORDS)
            case _:
                return admin.AdminSuccessResponse(request.seq_num)


@asynccontextmanager
async def storage(*versions: int) -> AsyncIterator[tuple[AdminPort, StorageAdmin]]:
    port = AdminPort()
    listener = Listener(ADMIN.limited_to(*versions), lambda: port, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    name = "127.0.0.1:1"
    try:
        async with await StorageAdmin.open(name, listener.port, PLAINTEXT, PARAMS) as opened:
            yield port, opened
    finally:
        await listener.close()


async def test_states_are_read_by_one_request() -> None:
    async with storage(0, 1) as (port, opened):
        (state,) = await opened.states()
        assert state == HeldPartition(1, 7, 5, 4, 12, 99, readable=True, writable=False)
        assert not state.available
        assert len(port.requests) == 1


async def test_states_of_old_storage_are_read_by_one_request_each() -> None:
    async with storage(0) as (_, opened):
        assert await opened.states() == (
            HeldPartition(1, 7, 5, 4, 12, None, readable=True, writable=True),
            HeldPartition(2, 7, 5, 4, None, None, readable=False, writable=False),
        )


@pytest.mark.parametrize("versions", [(0,), (0, 1)])
@pytest.mark.parametrize(("partitions", "dropped"), [((1, 2, 3), [1, 2]), ((3,), [])])
async def test_final_drop_ignores_only_replicas_that_the_storage_does_not_have(
    versions: tuple[int, ...], partitions: tuple[int, ...], dropped: list[int]
) -> None:
    async with storage(*versions) as (port, opened):
        await perform_at_storage(opened, DropReplicas("a:1", partitions, False, final=True))
        assert port.dropped == dropped


@pytest.mark.parametrize("partition", [1, 3], ids=["listed", "refused"])
async def test_final_drop_that_leaves_a_replica_at_the_storage_fails(
    monkeypatch: pytest.MonkeyPatch, partition: int
) -> None:
    refused = {"value": {"3": {"reason": "its files are damaged"}}}
    monkeypatch.setitem(GAUGES["gauges"], "waltz-storage.refused-partitions", refused)
    async with storage(0, 1) as (port, opened):
        port.droppable = {2}
        step = DropReplicas("a:1", (2, partition), delete_files=False, final=True)
        with pytest.raises(RemoteFailure, match="is not assigned"):
            await perform_at_storage(opened, step)


async def test_final_drop_that_loses_the_connection_to_a_new_storage_fails() -> None:
    async with storage(0, 1) as (port, opened):
        port.closes_on_drop = True
        with pytest.raises(ConnectionLost):
            await perform_at_storage(opened, DropReplicas("a:1", (3,), True, final=True))


async def test_damaged_ranges_are_read_from_storage_that_has_a_scrubber() -> None:
    async with storage(0, 1, 2) as (_, opened):
        assert await opened.damaged_ranges() == (DamagedRange(1, 3, 4),)
    async with storage(0, 1) as (port, opened):
        assert await opened.damaged_ranges() == ()
        assert not port.requests


async def test_repair_request_has_the_records_and_the_signed_checksum() -> None:
    async with storage(0, 1, 2) as (port, opened):
        await opened.repair(1, RECORDS, 0xFFFF_FFFF)
        (repair,) = port.requests
        assert (repair.partition, repair.checksum, repair.records) == (1, -1, RECORDS)
    async with storage(0, 1) as (port, opened):
        with pytest.raises(UnsupportedByPeer):
            await opened.repair(1, RECORDS, 0)


async def test_lists_of_old_storage_are_short_until_the_size_of_the_records_is_known() -> None:
    """A storage of 0.13.2 does not bound its answer, and the longest frame is 256 MiB."""
    async with storage(0) as (port, opened):
        for _ in range(2):
            assert await opened.records(1, 7, 1000) == RECORDS
        assert [request.max_records for request in port.requests] == [20, 1000]
    async with storage(0, 1) as (port, opened):
        await opened.records(1, 7, 1000)
        assert port.requests[0].max_records == 1000, "newer storages bound the answer"


async def test_list_of_old_storage_that_closes_the_connection_is_requested_again_and_shorter() -> (
    None
):
    """20 records of more than 13.4 MB each exceed the longest frame."""
    async with storage(0) as (port, opened):
        port.most_records = 1
        assert await opened.records(1, 7, 1000) == RECORDS
        assert [request.max_records for request in port.requests] == [20, 2, 1]
        port.most_records = 1000
        await opened.records(1, 7, 1000)
        assert port.requests[-1].max_records == 2, "the bound is kept, and grows again"


async def test_list_that_closes_the_connection_fails_if_a_shorter_one_cannot_help() -> None:
    async with storage(0) as (port, opened):
        port.most_records = 0
        with pytest.raises(ConnectionLost):
            await opened.records(1, 7, 1000)
        assert [request.max_records for request in port.requests] == [20, 2, 1]
    async with storage(0, 1) as (port, opened):
        port.most_records = 0
        with pytest.raises(ConnectionLost):
            await opened.records(1, 7, 1000)
        assert len(port.requests) == 1, "newer storages bound the answer"


class _LostConnection:
    """A connection to a storage of 0.13.2 that ends with each request."""

    version = 0

    async def call(self, *_: object) -> NoReturn:
        raise ConnectionLost("the list was too long")

    def close(self) -> None:
        pass


async def test_lost_connection_that_cannot_be_replaced_is_reported_as_lost() -> None:
    async def refuse() -> NoReturn:
        raise DialFailed("refused")

    for connect in (refuse, None):
        opened = StorageAdmin(cast(RpcConnection, _LostConnection()), connect)
        with pytest.raises(ConnectionLost, match="too long"):
            await opened.records(1, 7, 1000)


async def test_closed_client_opens_no_other_connection() -> None:
    async def unexpected() -> NoReturn:
        raise AssertionError("a connection was opened")

    opened = StorageAdmin(cast(RpcConnection, _LostConnection()), unexpected)
    opened.close()
    with pytest.raises(ConnectionLost):
        await opened.records(1, 7, 1000)


async def test_switch_requests_have_their_partitions() -> None:
    async with storage(0, 1) as (port, opened):
        await opened.switch((2, 1, 2), admin.Switch.WRITE, on=False)
        await opened.set_available((2, 1), available=True)
        switched, available = port.requests
        assert (switched.partitions, switched.switch, switched.on) == (
            (1, 2),
            admin.Switch.WRITE,
            False,
        )
        assert (available.partitions, available.available) == ((1, 2), True)


async def test_old_storage_has_one_switch() -> None:
    async with storage(0) as (port, opened):
        with pytest.raises(UnsupportedByPeer):
            await opened.switch((1,), admin.Switch.READ, on=True)
        await opened.set_available((1,), available=False)
        assert len(port.requests) == 1
