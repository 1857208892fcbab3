"""A debug bundle: what it has of a healthy and of a broken cluster, and what it must not have."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.admin.core.secrets import REMOVED, environment_without_secrets, without_secrets
from waltz.admin.debug_bundle import BundleCollector
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.protocol import admin
from waltz.protocol.failures import RpcFailure
from waltz.testing import FrameFault, FrameReplacement, InProcessCluster
from waltz.testing.nodes import ROOT

PARTS = {
    "health.json",
    "zookeeper.json",
    "znodes.json",
    "metadata.json",
    "replicas.json",
    "storage-metrics.json",
}


async def collected(cluster: InProcessCluster) -> BundleCollector:
    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        store = cluster.zookeeper.connect()
        try:
            yield Cluster(store, ROOT)
        finally:
            await store.close()

    collector = BundleCollector(
        open_cluster,
        "no-zookeeper.invalid:1",
        PLAINTEXT,
        timeout_seconds=0.5,
        network=cluster.network.host("admin"),
    )
    await collector.collect()
    return collector


async def test_bundle_has_znodes_metadata_and_states_of_all_replicas() -> None:
    async with InProcessCluster(partitions=2) as cluster:
        async with cluster.connect() as client:
            await client.append(0, b"contents of a record")
        collector = await collected(cluster)
    assert collector.files.keys() >= PARTS
    assert collector.errors == []
    znodes = json.loads(collector.files["znodes.json"])
    assert {ROOT, f"{ROOT}/store/partition/0"} & znodes.keys() == {
        ROOT,
        f"{ROOT}/store/partition/0",
    }
    storages = json.loads(collector.files["replicas.json"])["storages"]
    assert {s: sorted(each["held"]) for s, each in storages.items()} == {
        storage.address: ["0", "1"] for storage in cluster.storages
    }
    everything = b"".join(collector.files.values())
    assert b"contents of a record" not in everything
    assert b"contents of a record".hex().encode() not in everything


async def test_bundle_of_a_broken_cluster_has_all_files_with_the_problems() -> None:
    async with InProcessCluster() as cluster:
        await cluster.kill_storage(0)
        await cluster.kill_storage(1)
        await cluster.kill_server(expire=False)
        collector = await collected(cluster)
    assert collector.files.keys() >= PARTS
    storages = json.loads(collector.files["replicas.json"])["storages"]
    problems = [storages[each.address]["problem"] for each in cluster.storages]
    assert [problem is None for problem in problems] == [False, False, True]


def refused(response: admin.MetricsResponse) -> FrameReplacement:
    failure = RpcFailure("StorageException: no metrics now")
    return FrameReplacement(admin.AdminFailureResponse(response.seq_num, failure))


def malformed(response: admin.MetricsResponse) -> FrameReplacement:
    return FrameReplacement(admin.MetricsResponse(response.seq_num, "{gauges"))


def other_json(response: admin.MetricsResponse) -> FrameReplacement:
    return FrameReplacement(admin.MetricsResponse(response.seq_num, "[]"))


def silent(_: admin.MetricsResponse) -> FrameFault:
    return FrameFault.DROP


@pytest.mark.parametrize(
    ("replace", "problem"),
    [
        (refused, "StorageException: no metrics now"),
        (malformed, "its metrics are not JSON: Expecting property name"),
        (other_json, "its metrics are not a JSON object"),
        (silent, "no answer within 0.5 s"),
    ],
)
@on_virtual_time
async def test_storage_without_metrics_does_not_cost_the_metrics_of_the_others(
    replace: Callable[[admin.MetricsResponse], FrameReplacement | FrameFault], problem: str
) -> None:
    def rule(message: object) -> FrameReplacement | FrameFault | None:
        return replace(message) if isinstance(message, admin.MetricsResponse) else None

    async with InProcessCluster() as cluster:
        first, *others = cluster.storages
        cluster.network.frame_rules[first.host, "admin"] = rule
        collector = await collected(cluster)
    metrics = json.loads(collector.files["storage-metrics.json"])
    assert problem in metrics[first.address]["problem"]
    assert all("gauges" in metrics[other.address] for other in others)


@on_virtual_time
async def test_bundle_without_zookeeper_has_unknown_health_and_the_errors() -> None:
    async with InProcessCluster() as cluster:
        cluster.zookeeper.stop_answering()
        begun = asyncio.get_running_loop().time()
        collector = await collected(cluster)
        seconds = asyncio.get_running_loop().time() - begun
        cluster.zookeeper.resume_answering()
    health = json.loads(collector.files["health.json"])
    assert health["state"] == "unknown"
    parts = PARTS - {"health.json", "zookeeper.json"} | {"checks.json"}
    assert sorted(collector.errors) == sorted(f"{p}: no answer within 3.5 s" for p in parts)
    # The limit of the health, which is the longest, and that of the probe.
    assert seconds < 4 + 0.5 + 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("server.tls.password: hunter2", "server.tls.password: "),
        ('{"api_key": "hunter2", "port": 1}', '"port": 1'),
        ("STORE_PASSWORD='hunter2' waltz-server", "waltz-server"),
        ("token=hunter2; user=me", "user=me"),
        ('{"password": "a\\"hunter2", "port": 1}', '"port": 1'),
        ("password: 'it''s hunter2'\nport: 1", "port: 1"),
        ("password: correct hunter2\nport: 1", "port: 1"),
        ("tls:\n  password: |\n    correct\n    hunter2\n  port: 1", "port: 1"),
        ("tls:\n  password: correct\n    hunter2\n  port: 1", "port: 1"),
        ('password: "correct\n  hunter2"\nport: 1', "port: 1"),
        ("password: 'correct\n  hunter2'\nport: 1", "port: 1"),
        ("- password: hunter2\n  port: 1", "port: 1"),
        ("tls:\n  password: |\n    correct\n\n    hunter2\n  port: 1", "port: 1"),
        ('password: "correct\n  \n\n  hunter2"\nport: 1', "port: 1"),
        ("- password: correct\n    hunter2\n  port: 1", "port: 1"),
        ("- password: hunter2\n  port:\n    1", "port:"),
        ("waltz-server --password hunter2 --port 1", "--port 1"),
        ("postgresql://me:hunter2@host/db", "postgresql://me:"),
        ("HTTPS://me:hunter2@host/db", "HTTPS://me:"),
        ('{"message": "{\\"password\\": \\"hunter2\\"}", "port": 1}', '}", "port": 1}'),
        ('{"message": "password=\\"a hunter2\\", port=1"}', 'port=1"}'),
        ('{"message": "password=\\"a \\\\\\"b\\\\\\" hunter2\\", port=1"}', 'port=1"}'),
        ('{"message": "password=\\"a hunter2\nport=1', "port=1"),
        ('waltz-server --password \\"a hunter2\\" --port 1', "--port 1"),
        ('tls:\n  "password": a phrase hunter2\n  port: 1', "port: 1"),
        ("tls:\n  'password': a phrase hunter2\n  port: 1", "port: 1"),
        ("-   password: a phrase hunter2\n    port: 1", "port: 1"),
        ("postgresql://me:a@hunter2@host/db", "@host/db"),
        ("passwords:\n  - a\n  - hunter2\nport: 1", "port: 1"),
        ("passwords:\n- a\n- hunter2\nport: 1", "port: 1"),
        ("secrets:\n  database: hunter2\nport: 1", "port: 1"),
        ("password: {old: a, new: hunter2}\nport: 1", "port: 1"),
        ('{"passwords": ["a", "hunter2"], "port": 1}', '"port": 1'),
        ('{"tokens": [\n "a",\n "hunter2"\n], "port": 1}', '"port": 1'),
        ("Authorization: Bearer hunter2\nHost: a", "Host: a"),
        ("pwd=hunter2 port=1", "port=1"),
        ("privateKey: hunter2\nport: 1", "port: 1"),
        ("password => hunter2, port => 1", "port => 1"),
        ("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\nafter", "after"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2", "RSA PRIVATE KEY"),
        ("hunter2=\n-----END PRIVATE KEY-----\nafter", "after"),
    ],
)
def test_secrets_are_removed_and_the_rest_is_kept(text: str, kept: str) -> None:
    found = without_secrets(text)
    assert "hunter2" not in found
    assert kept in found
    assert REMOVED in found


def is_quick(search: Callable[[], object]) -> bool:
    """Return whether ``search`` goes through its text once, not once per character.

    On these texts the first takes a few hundredths of a second, the second minutes.
    """
    begun = time.process_time()
    search()
    return time.process_time() - begun < 10


@pytest.mark.parametrize("part", ["a", "-", "a."])
def test_long_word_is_searched_for_secrets_once(part: str) -> None:
    text = f"record {part * 100_000} of partition 0"
    assert is_quick(lambda: without_secrets(text))
    assert without_secrets(text) == text


def test_blank_lines_without_a_closing_quote_are_searched_once() -> None:
    text = 'password: "' + "\n  " * 100_000
    assert is_quick(lambda: without_secrets(text))


def test_escaped_quotes_that_are_not_closed_are_searched_once() -> None:
    text = 'tokens=\\"' + "a" * 1000 + "\n"
    assert is_quick(lambda: without_secrets(text * 1000))
    assert is_quick(lambda: without_secrets("tokens=" + "\\" * 100_000))


def test_brackets_that_are_not_closed_are_searched_once() -> None:
    text = "tokens=[{\n" * 50_000
    assert is_quick(lambda: without_secrets(text))


def test_text_without_secrets_is_unchanged() -> None:
    text = "server.port: 55180\npartition 3 acquired, generation 7\n"
    assert without_secrets(text) == text


def test_environment_has_only_the_variables_of_the_product_without_secrets() -> None:
    found = environment_without_secrets(
        {
            "WALTZ_ROOT": "/r",
            "WALTZ_X_PASSWORD": "hunter2",
            "WALTZ_X": "https://user:hunter2@host/x",
            "AWS_SECRET": "hunter2",
        },
        "WALTZ_",
    )
    assert found == {
        "WALTZ_ROOT": "/r",
        "WALTZ_X_PASSWORD": REMOVED,
        "WALTZ_X": f"https://user:{REMOVED}@host/x",
    }
