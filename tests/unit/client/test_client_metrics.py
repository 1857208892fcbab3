"""The metrics of a client, and their names."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.eventually import eventually
from waltz import ClusterUnreachable, Lock, LockFailed
from waltz.testing import InProcessCluster

GROUP = "waltz-client-stream.partition-0"


async def test_client_metrics_count_appends_streams_and_failures() -> None:
    async with InProcessCluster(2) as cluster, cluster.connect() as client:
        gauges = client.metrics.http_form()["gauges"]
        assert gauges["waltz-client.cluster-name"]["value"] == "testing"
        assert gauges["waltz-client.client-id"]["value"] == client.client_id
        assert gauges["waltz-client.active-partition-ids"]["value"] == []
        for number in range(3):
            await client.append(0, b"x", write_locks=[Lock("row", 1)], mark=number - 1)
        with pytest.raises(LockFailed):
            await client.append(0, b"x", write_locks=[Lock("row", 1)], mark=0)
        assert [t.id async for t in client.stream(0, until=1)] == [0, 1]
        # Partition 1 is not mounted yet, and its server no longer answers.
        cluster.network.partition("client", "server-0")
        with pytest.raises(ClusterUnreachable):
            await client.append(1, b"x", timeout=0.01)
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
    async with InProcessCluster() as cluster, cluster.connect() as client:
        cluster.suspend_feed(0)
        append = asyncio.ensure_future(client.append(0, b"x"))
        await eventually(lambda: cluster.transactions(0))
        assert client.pending == 1
        gauges = client.metrics.http_form()["gauges"]
        assert gauges[f"{GROUP}.num-registered-transactions"]["value"] == 1
        append.cancel()
        await asyncio.gather(append, return_exceptions=True)
        assert client.pending == 0
