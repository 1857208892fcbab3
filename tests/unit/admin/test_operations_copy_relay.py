"""Copies between two storages that do not reach each other, in a whole cluster on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.admin import CopyFailed, ObservationScope, OrderExecutor, execution
from waltz.admin.core.steps import CopyReplica, CreateReplicas, DropReplicas, SwitchOff
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT
from waltz_operator.shell import environment
from waltz_storage.shell import peer_pull

RECORDS = 30


@asynccontextmanager
async def new_replica() -> AsyncIterator[tuple[InProcessCluster, CopyReplica]]:
    """Yield a cluster with an empty replica, and the copy that fills it.

    The path between the two storages drops all packets.
    """
    async with InProcessCluster(partitions=1) as cluster:
        async with cluster.connect() as client:
            for _ in range(RECORDS):
                await client.append(0, b"data")
        # The copy ends where the present session of the source began.
        await cluster.kill_server()
        await cluster.start_server()
        await cluster.ready()
        source, _, destination = cluster.storages
        ours = executor_of(cluster)
        # The server must not fill the replica before it is switched off.
        cluster.network.partition(cluster.servers[0].host, destination.host)
        await ours.perform(DropReplicas(destination.address, (0,), delete_files=True))
        await ours.perform(CreateReplicas(destination.address, (0,)))
        await ours.perform(SwitchOff(destination.address, (0,)))
        cluster.network.partition(source.host, destination.host)
        yield cluster, CopyReplica(source.address, destination.address, 0)


def executor_of(cluster: InProcessCluster, **options: Any) -> OrderExecutor:
    znodes = Cluster(cluster.zookeeper.connect(), ROOT)
    return OrderExecutor(
        znodes, PLAINTEXT, network=cluster.network.host("administrator"), **options
    )


async def last_id(executor: OrderExecutor, copy: CopyReplica) -> int | None:
    observation = await executor.observe(ObservationScope((), frozenset({copy.destination})))
    held = observation.held(copy.destination, 0)
    assert held is not None
    return held.max_transaction_id


@on_virtual_time
async def test_copy_whose_destination_gets_no_packets_of_the_source_is_relayed() -> None:
    async with new_replica() as (cluster, copy):
        executor = executor_of(cluster)
        await executor.perform(copy)
        assert await last_id(executor, copy) == RECORDS - 1


@on_virtual_time
async def test_copy_of_the_operator_over_a_path_without_packets_fails_with_the_reason() -> None:
    async with new_replica() as (cluster, copy):
        executor = executor_of(cluster, answer_seconds=environment._ANSWER_SECONDS, relay=False)
        with pytest.raises(CopyFailed, match=r"cannot read from storage-0:55281: no answer within"):
            await executor.perform(copy)
        assert await last_id(executor, copy) == -1


@on_virtual_time
async def test_copy_whose_last_append_is_slow_succeeds_also_in_the_operator() -> None:
    append = peer_pull.PeerPulls._append

    async def slow(*arguments: Any) -> None:
        await append(*arguments)
        await asyncio.sleep(execution.COPY_PART_SECONDS - 1)

    async with new_replica() as (cluster, copy):
        cluster.network.heal()
        executor = executor_of(cluster, answer_seconds=environment._ANSWER_SECONDS, relay=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peer_pull.PeerPulls, "_append", slow)
            await executor.perform(copy)
        assert await last_id(executor, copy) == RECORDS - 1


def test_storage_gives_up_a_peer_in_half_of_the_time_of_an_administrator() -> None:
    """The administrator needs the reason, and the last append of a pull may be slow."""
    assert peer_pull._PULL_SECONDS < peer_pull._PEER_SECONDS
    assert 2 * peer_pull._PEER_SECONDS <= execution.COPY_PART_SECONDS
