"""Appends that no storage could carry are refused when they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, batched, new_append, req_id
from waltz.net import PLAINTEXT
from waltz.protocol import CLIENT_SERVER, Record, RecordBatch, checksum
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.frames import MAX_FRAME_BYTES, MAX_RECORD_BYTES
from waltz.testing import InProcessCluster
from waltz_server.shell.client_connection import ClientConnection

LIMIT = 200
PORT = 4711
LARGE = "x" * LIMIT


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster() as cluster:
        yield cluster


async def limited_client(cluster: InProcessCluster) -> RawClient:
    """Connect to a port of the server that accepts smaller records than the usual one."""
    node, host = cluster.servers[0].node, cluster.servers[0].host
    assert node is not None
    listener = cluster.network.host(host).listener(
        CLIENT_SERVER, lambda: ClientConnection(node, LIMIT), PLAINTEXT
    )
    listener.start(None, PORT)
    client = RawClient()
    client._connection = await cluster.network.host("client").dial(
        host, PORT, CLIENT_SERVER, client, PLAINTEXT
    )
    await client.connection.handshake()
    await client.mount()
    return client


async def test_too_large_append_fails_and_the_session_continues(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    client = await limited_client(cluster)
    client.send(new_append("a", 1), new_append(LARGE, 2), new_append("b", 3))
    client.send(cs.FlushRequest(req_id(4)))
    assert await client.take() == [cs.FlushResponse(req_id(4), 1)]
    await eventually(lambda: [t.data for t in cluster.transactions(0)] == [b"a", b"b"])
    refused = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(refused) == 1
    assert "append of client 1" in refused[0]
    assert "at most 200 can be stored" in refused[0]
    assert "continues without" not in caplog.text
    assert client.lost_because is None


async def test_batch_with_a_too_large_append_is_absent(cluster: InProcessCluster) -> None:
    client = await limited_client(cluster)
    client.send(cs.AppendBatchRequest(req_id(1), -1, (batched("a"), batched(LARGE))))
    absent = BatchedOutcome(OutcomeKind.ABSENT)
    assert await client.take() == [cs.AppendBatchResponse(req_id(1), (absent, absent))]
    client.send(cs.AppendBatchRequest(req_id(3), -1, (batched("a"),)))
    committed = BatchedOutcome(OutcomeKind.COMMITTED, 0)
    assert await client.take() == [cs.AppendBatchResponse(req_id(3), (committed,))]


def test_messages_with_one_record_of_the_largest_size_fit_into_a_frame() -> None:
    record = Record(0, req_id(), 0, b"", checksum(b""))
    records = RecordBatch.of([record])
    rest = MAX_RECORD_BYTES - len(records.wire)
    carriers = [
        st.encode(st.AppendRequest(0, 0, 0, records), 2),
        st.encode(st.RecordListResponse(0, 0, 0, records), 2),
        cs.encode(cs.RecordsResponse(req_id(), None, 0, records), 5),
        cs.encode(cs.TransactionDataResponse(req_id(), 0, b"", checksum(b"")), 5),
    ]
    assert all(len(frame) + rest <= MAX_FRAME_BYTES for frame in carriers)
