"""The metrics of a client, and their names."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.eventually import eventually
from tests.support.fake_server import fake_cluster
from waltz import ClusterUnreachable, Lock, LockFailed

GROUP = "waltz-client-stream.partition-0"


async def test_client_metrics_count_appends_streams_and_failures() -> None:
    async with fake_cluster(2) as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        gauges = client.metrics.http_form()["gauges"]
        assert gauges["waltz-client.cluster-name"]["value"] == "fake"
        assert gauges["waltz-client.client-id"]["value"] == client.client_id
        assert gauges["waltz-client.active-partition-ids"]["value"] == []
        for _ in range(3):
            await client.append(0, b"x", write_locks=[Lock("row", 1)], mark=2)
        with pytest.raises(LockFailed):
            await client.append(0, b"x", write_locks=[Lock("row", 1)], mark=0)
        with pytest.raises(ClusterUnreachable):
            await client.append(1, b"x", timeout=0.01)
        assert [t.id async for t in client.stream(0, until=1)] == [0, 1]
        form = client.metrics.http_form()
        gauges, meters = form["gauges"], form["meters"]
        assert gauges["waltz-client.active-partition-ids"]["value"] == [0, 1]
        assert gauges[f"{GROUP}.is-mounted"]["value"] is True
        assert gauges[f"{GROUP}.high-water-mark"]["value"] == 2
        assert meters[f"{GROUP}.send-throughput"]["count"] == 4
        assert meters[f"{GROUP}.received-throughput"]["count"] == 2
        assert meters[f"{GROUP}.lock-failure"]["count"] == 1
        assert form["timers"][f"{GROUP}.append-latency"]["count"] == 3
        other = "waltz-client-stream.partition-1"
        assert gauges[f"{other}.is-mounted"]["value"] is False
        assert meters[f"{other}.transaction-monitor-timeout"]["count"] == 1


async def test_client_counts_appends_without_outcome() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        cluster.partition(0).auto = False
        append = asyncio.ensure_future(client.append(0, b"x"))
        await eventually(lambda: cluster.partition(0).pending)
        assert client.pending == 1
        gauges = client.metrics.http_form()["gauges"]
        assert gauges[f"{GROUP}.num-registered-transactions"]["value"] == 1
        cluster.partition(0).auto = True
        append.cancel()
        await asyncio.gather(append, return_exceptions=True)
        assert client.pending == 0
