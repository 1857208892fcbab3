"""A diagnosis of a cluster in one process: dead storages, a dead ZooKeeper, a wrong path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.admin import diagnosis
from waltz.admin.core.health import Health, HealthState, ProcessKind, Severity, judge
from waltz.admin.core.replica_states import view_partition
from waltz.admin.core.verification import Check, Finding
from waltz.admin.diagnosis import diagnose
from waltz.admin.monitoring import Monitor
from waltz.admin.server_query import ServerQuery
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import ConnectFailed
from waltz.metadata.store import StoreError
from waltz.metadata.zookeeper_access import BadCredentials
from waltz.net import PLAINTEXT, TlsConfig
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT


async def diagnosed(
    cluster: InProcessCluster,
    root: str = ROOT,
    tls: TlsConfig | None = PLAINTEXT,
    timeout_seconds: float = 0.5,
) -> Health:
    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        store = cluster.zookeeper.connect()
        try:
            yield Cluster(store, root)
        finally:
            await store.close()

    network = cluster.network.host("admin")
    return await diagnose(
        open_cluster,
        "no-zookeeper.invalid:1",
        tls,
        timeout_seconds=timeout_seconds,
        network=network,
    )


async def test_healthy_cluster_has_no_problems() -> None:
    async with InProcessCluster(partitions=2) as cluster:
        health = await diagnosed(cluster)
    assert (health.state, health.statements) == (HealthState.HEALTHY, ())


async def test_declaration_of_tls_is_followed_and_a_malformed_one_is_named() -> None:
    async with InProcessCluster() as cluster:
        assert (await diagnosed(cluster, tls=None)).state is HealthState.HEALTHY
        store = cluster.zookeeper.connect()
        await store.set(f"{ROOT}/transport", b"{}", -1)
        (statement,) = (await diagnosed(cluster, tls=None)).statements
        assert f"{ROOT}/transport in ZooKeeper" in statement.text
        assert "--tls on or --tls off" in statement.remedy
        assert (await diagnosed(cluster)).state is HealthState.HEALTHY


async def test_two_dead_storages_are_both_named_with_the_lost_quorum() -> None:
    async with InProcessCluster(partitions=2) as cluster:
        await cluster.kill_storage(0)
        await cluster.kill_storage(1)
        health = await diagnosed(cluster)
    texts = [each.text for each in health.statements]
    assert any("1 of 3 replicas are available, and 2 are needed" in text for text in texts)
    for storage in cluster.storages[:2]:
        assert any(text.startswith(f"Storage {storage.address} does not") for text in texts)
    assert all(each.command for each in health.statements)


async def test_dead_server_is_named() -> None:
    async with InProcessCluster() as cluster:
        await cluster.kill_server(expire=False)
        health = await diagnosed(cluster)
    assert health.state is HealthState.UNAVAILABLE
    assert health.headline == "1 of 1 partitions accept no appends."
    (statement, *_) = health.statements
    assert statement.severity is Severity.CRITICAL, "nothing listens on the port of the owner"
    assert statement.text.startswith("Server ")
    assert " does not answer: " in statement.text


async def test_partitions_of_dead_servers_are_one_statement() -> None:
    async with InProcessCluster(partitions=4, servers=2) as cluster:
        # Servers that die while partitions move between them leave replicas out of the session.
        while (await diagnosed(cluster)).state is not HealthState.HEALTHY:
            pass
        await asyncio.gather(cluster.kill_server(0), cluster.kill_server(1))
        health = await diagnosed(cluster)
    (statement,) = health.statements
    assert health.headline == "4 of 4 partitions accept no appends."
    assert statement.text == "Each of partitions 0-3: its server is not running."
    assert statement.missing is ProcessKind.SERVER


async def test_server_that_refuses_connections_accepts_no_appends() -> None:
    """ZooKeeper has the session of the second server until it expires."""
    async with InProcessCluster(partitions=4, servers=2) as cluster:
        await cluster.kill_server(1, expire=False)
        await cluster.kill_server(0)
        health = await diagnosed(cluster)
    assert health.headline == "4 of 4 partitions accept no appends."
    critical = [each for each in health.statements if each.severity is Severity.CRITICAL]
    silent, unserved = critical
    assert silent.process is not None
    assert unserved.text.startswith("Each of partitions ")
    assert unserved.text.endswith(", which is not running.")


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        (("s:1 is x", "s:1 is x"), "Each of partitions 0-1: s:1 is x."),
        (
            (
                "the replica on s:1 is being filled in session 3",
                "the replica on s:1 is being filled in session 4",
            ),
            "Each of partitions 0-1: the replica on s:1 is being filled.",
        ),
        (
            ("the replica on s:1 took part in session 1, but not in the current one, 3",) * 2,
            "Each of partitions 0-1: the replica on s:1 took part in session 1, but not in the "
            "current one, 3.",
        ),
    ],
)
async def test_problems_that_differ_in_numbers_are_one_statement(
    problems: tuple[str, str], text: str
) -> None:
    async with (
        InProcessCluster(partitions=2) as cluster,
        Monitor(
            Cluster(cluster.zookeeper.connect(), ROOT),
            PLAINTEXT,
            timeout_seconds=5,
            network=cluster.network.host("admin"),
        ) as monitor,
    ):
        now = await monitor.sample()
    findings = [
        Finding(partition, Check.REPLICAS_RECOVERED, (problem,))
        for partition, problem in enumerate(problems)
    ]
    partitions = [view_partition(None, now, partition) for partition in range(2)]
    (statement,) = judge(now, partitions, findings).statements
    assert statement.text == text


async def test_unusable_credentials_are_raised_and_are_no_silence_of_zookeeper() -> None:
    """The caller corrects its own file; a remedy about ZooKeeper would mislead."""

    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        raise BadCredentials("cannot read the credentials of ZooKeeper in missing: No such file")
        yield

    with pytest.raises(BadCredentials, match="cannot read the credentials"):
        await diagnose(open_cluster, "no-zookeeper.invalid:1", PLAINTEXT, timeout_seconds=0.5)


async def test_path_without_a_cluster_is_reported() -> None:
    async with InProcessCluster() as cluster:
        health = await diagnosed(cluster, "/other")
    (statement,) = health.statements
    assert "/other" in statement.text
    assert statement.command == "waltz cluster show"


@on_virtual_time
async def test_zookeeper_that_stops_answering_is_reported_within_the_limit() -> None:
    async with InProcessCluster() as cluster:
        cluster.zookeeper.stop_answering()
        async with asyncio.timeout(30):
            health = await diagnosed(cluster)
        cluster.zookeeper.resume_answering()
    assert health.state is HealthState.UNKNOWN
    assert health.statements[0].text.startswith("ZooKeeper stopped answering: ")


@on_virtual_time
async def test_server_whose_answers_are_slow_is_no_silence_of_zookeeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sample takes 20 s of the 42 s for ZooKeeper, and the query of the servers 27 s more."""
    send_requests = ServerQuery._send_requests

    async def send_slowly(*args: Any) -> Any:
        await asyncio.sleep(9)
        return await send_requests(*args)

    async with InProcessCluster() as cluster:
        monkeypatch.setattr(ServerQuery, "_send_requests", send_slowly)
        health = await diagnosed(cluster, timeout_seconds=10)
    (statement,) = health.statements
    assert "did not answer all requests within 20 s" in statement.text


async def answers(said: bytes, judged: Callable[[int], Awaitable[None]]) -> None:
    """Listen like a ZooKeeper server that answers every command with ``said``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        await judged(server.sockets[0].getsockname()[1])


async def test_zookeeper_without_a_majority_is_distinguished_from_a_dead_one() -> None:
    @asynccontextmanager
    async def no_session() -> AsyncIterator[Cluster]:
        raise StoreError("no session within 1 s")
        yield  # A context manager needs one.

    async def check(port: int) -> None:
        zookeeper = f"127.0.0.1:{port},127.0.0.1:1"
        health = await diagnose(no_session, zookeeper, PLAINTEXT, timeout_seconds=2.0)
        (statement,) = health.statements
        assert "ZooKeeper does not answer: no session within 1 s" in statement.text
        assert f"127.0.0.1:{port} runs, but serves no requests" in statement.text
        assert "127.0.0.1:1 cannot be reached" in statement.text

    await answers(b"This ZooKeeper instance is not currently serving requests\n", check)


async def test_zookeeper_whose_servers_were_probed_is_not_probed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def no_session() -> AsyncIterator[Cluster]:
        raise ConnectFailed("no session within 1 s", "the reason", {"a:1": "is silent"})
        yield  # A context manager needs one.

    async def fail(*_: object, **__: object) -> dict[str, str]:
        raise AssertionError("a second probe")

    monkeypatch.setattr(diagnosis, "probe_zookeeper", fail)
    health = await diagnose(no_session, "a:1", PLAINTEXT, timeout_seconds=1.0)
    (statement,) = health.statements
    assert statement.text == "ZooKeeper does not answer: no session within 1 s. a:1 is silent."
    assert statement.process == "a:1"
