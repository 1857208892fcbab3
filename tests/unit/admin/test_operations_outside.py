"""Test that diagnoses and bundles made outside the network dial the outside addresses only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.outside import OUTSIDE_HOST, Outside, metadata, set_outside
from waltz.admin.core.health import Health, Severity
from waltz.admin.debug_bundle import BundleCollector
from waltz.admin.diagnosis import OpenCluster, diagnose
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.testing import InProcessCluster


def opener(running: InProcessCluster) -> OpenCluster:
    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        cluster = metadata(running)
        yield cluster
        await cluster.store.close()

    return open_cluster


async def diagnosed(running: InProcessCluster, outside: Outside) -> Health:
    """Diagnose ``running`` as a client outside its network does."""
    return await diagnose(
        opener(running),
        "no-zookeeper.invalid:1",
        PLAINTEXT,
        timeout_seconds=5.0,
        access="outside",
        network=outside,
    )


async def test_diagnosis_outside_reaches_all_processes_by_outside_addresses() -> None:
    async with InProcessCluster(partitions=2, servers=2) as running:
        outside = Outside(running)
        await set_outside(running, outside.forward_all())
        health = await diagnosed(running, outside)
        assert [statement.text for statement in health.statements] == []
        assert {address.partition(":")[0] for address in outside.dialed} == {OUTSIDE_HOST}


async def test_bundle_outside_has_the_metrics_of_storages() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        await set_outside(running, outside.forward_all())
        collector = BundleCollector(
            opener(running),
            "no-zookeeper.invalid:1",
            PLAINTEXT,
            timeout_seconds=5.0,
            access="outside",
            network=outside,
        )
        await collector.collect()
        assert collector.errors == []
        metrics = json.loads(collector.files["storage-metrics.json"])
        assert metrics.keys() == {storage.address for storage in running.storages}
        assert all("problem" not in each for each in metrics.values())
        assert {address.partition(":")[0] for address in outside.dialed} == {OUTSIDE_HOST}


async def test_diagnosis_outside_does_not_call_a_refused_outside_address_critical() -> None:
    """It proves only that the way in is missing: the server may run."""
    async with InProcessCluster() as running:
        outside = Outside(running)
        addresses = outside.forward_all()
        await set_outside(running, {**addresses, "server-0:55180": "lb.example:9"})
        health = await diagnosed(running, outside)
        silent = [each for each in health.statements if "does not answer" in each.text]
        assert [each.severity for each in silent] == [Severity.WARNING]
        assert Severity.CRITICAL not in {each.severity for each in health.statements}
