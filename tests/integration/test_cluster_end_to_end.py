"""Appends are streamed back in order, also after a restart of all processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import waltz
from tests.support.load import client_of, read_log
from tests.support.replicas import partition_checksum, replicas_agree
from waltz.local import ClusterRunning, LocalCluster, PlanError, Shape

MORE_THAN_ONE_FEED = 2500
"""Enough that a server feeds them in several chunks and a storage reaches two checkpoints."""


async def test_reader_gets_all_appends_in_order(cluster: LocalCluster) -> None:
    async with client_of(cluster) as client:
        before = await client.high_water_mark(0)
        sent = [b"%d" % number for number in range(MORE_THAN_ONE_FEED)]
        ids = await asyncio.gather(*(client.append(0, data, header=7) for data in sent))
        assert sorted(ids) == list(range(before + 1, before + 1 + len(sent)))
        by_id = dict(zip(ids, sent, strict=True))
    async with client_of(cluster) as reader:
        async with asyncio.timeout(60):
            log = await read_log(reader, 0, before)
        assert log == [by_id[transaction_id] for transaction_id in sorted(ids)]
        one = reader.stream(0, after=before, until=before + 1)
        assert [transaction.header async for transaction in one] == [7]


async def test_locks_refuse_appends_decided_on_an_old_state(cluster: LocalCluster) -> None:
    account = [waltz.Lock("account", 17)]
    async with client_of(cluster) as client:
        first = await client.append(1, b"first", write_locks=account)
        with pytest.raises(waltz.LockFailed) as refused:
            await client.append(1, b"late", write_locks=account, mark=first - 1)
        assert refused.value.transaction_id >= first
        with pytest.raises(waltz.LockFailed):
            await client.append(1, b"late reader", read_locks=account, mark=first - 1)
        unchecked = await client.append(1, b"unchecked", append_locks=account, mark=first - 1)
        assert unchecked == first + 1
        second = await client.append(1, b"second", write_locks=account, mark=unchecked)
        assert second == unchecked + 1


async def test_concurrent_increments_under_a_lock_lose_no_update(cluster: LocalCluster) -> None:
    """Two clients increment one number: each transaction contains the previous one plus one."""
    counter = [waltz.Lock("counter", 1)]

    async def increment(client: waltz.Client, times: int) -> None:
        for _ in range(times):

            async def build(attempt: waltz.Attempt) -> waltz.Draft:
                value = int((await read_log(client, 2))[-1])
                # The value read may be newer than the attempt's mark, never older.
                return waltz.Draft(b"%d" % (value + 1), write_locks=counter, mark=attempt.mark)

            await client.submit(2, build)

    async with client_of(cluster) as one, client_of(cluster) as two:
        start = await one.append(2, b"0", write_locks=counter)
        await asyncio.gather(increment(one, 20), increment(two, 20))
        log = await read_log(one, 2, start)
    assert log == [b"%d" % value for value in range(1, 41)]


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
async def test_restarted_cluster_has_the_same_logs(tmp_path: Path, tls: bool) -> None:
    shape = Shape(partitions=2, storages=3, servers=1, tls=tls)
    logs: list[list[bytes]] = []
    cluster = LocalCluster(tmp_path, shape, session_timeout_ms=2000)
    async with cluster, client_of(cluster) as client:
        for number in range(30):
            await client.append(number % 2, b"%d" % number)
        logs = [await read_log(client, partition) for partition in range(2)]
        await replicas_agree(cluster, 10)
        described = json.loads(cluster.layout.description.read_text())
        assert all(process["pid"] for process in described["processes"].values())
    assert not cluster.layout.description.exists()
    directories = [cluster.layout.data(name) for name in cluster.plan.storage_names]
    for partition in range(2):
        assert len({partition_checksum(each, partition) for each in directories}) == 1

    again = LocalCluster(tmp_path, session_timeout_ms=2000)
    async with again:
        assert again.plan == cluster.plan
        with pytest.raises(ClusterRunning, match="running already"):
            await LocalCluster(tmp_path).start()
        async with client_of(again) as client:
            assert [await read_log(client, partition) for partition in range(2)] == logs
            assert await client.append(0, b"more") == len(logs[0])
    with pytest.raises(PlanError, match="cluster of 2 partitions"):
        await LocalCluster(tmp_path, Shape(partitions=3)).start()
