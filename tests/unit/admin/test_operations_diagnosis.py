"""A diagnosis of a cluster in one process: dead storages, a dead ZooKeeper, a wrong path."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from waltz.admin.core.health import Health, HealthState
from waltz.admin.core.zookeeper_answers import judge_answer, split_connect_string
from waltz.admin.diagnosis import diagnose
from waltz.admin.zookeeper_probe import probe_zookeeper
from waltz.metadata.cluster import Cluster
from waltz.metadata.store import StoreError
from waltz.net import PLAINTEXT
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT


async def diagnosed(cluster: InProcessCluster, root: str = ROOT) -> Health:
    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        store = cluster.zookeeper.connect()
        try:
            yield Cluster(store, root)
        finally:
            await store.close()

    network = cluster.network.host("admin")
    return await diagnose(
        open_cluster, "no-zookeeper.invalid:1", PLAINTEXT, timeout_seconds=0.5, network=network
    )


async def test_healthy_cluster_has_no_problems() -> None:
    async with InProcessCluster(partitions=2) as cluster:
        health = await diagnosed(cluster)
    assert (health.state, health.statements) == (HealthState.HEALTHY, ())


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
    assert health.state is HealthState.UNKNOWN
    (statement, *_) = health.statements
    assert statement.text.startswith("Server ")
    assert " does not answer: " in statement.text


async def test_path_without_a_cluster_is_said() -> None:
    async with InProcessCluster() as cluster:
        health = await diagnosed(cluster, "/other")
    (statement,) = health.statements
    assert "/other" in statement.text
    assert statement.command == "waltz cluster show"


async def test_zookeeper_that_stops_answering_is_said_within_the_limit() -> None:
    async with InProcessCluster() as cluster:
        cluster.zookeeper.stop_answering()
        async with asyncio.timeout(30):
            health = await diagnosed(cluster)
        cluster.zookeeper.resume_answering()
    assert health.state is HealthState.UNKNOWN
    assert health.statements[0].text.startswith("ZooKeeper stopped answering: ")


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


@pytest.mark.parametrize(
    ("answer", "clause"),
    [
        (b"Zookeeper version: 3.9\nMode: follower\nNode count: 5\n", "answers as follower"),
        (b"srvr is not executed because it is not in the whitelist.\n", "does not allow"),
        (b"", "may use TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not answer like a ZooKeeper"),
    ],
)
def test_judge_answer_names_the_problem(answer: bytes, clause: str) -> None:
    assert clause in judge_answer(answer)


def test_connect_string_is_split_into_addresses() -> None:
    assert split_connect_string("a:1,b, [::1]:3,:,x:y/chroot") == [
        ("a", 1),
        ("b", 2181),
        ("::1", 3),
    ]


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (errno.ECONNREFUSED, "cannot be reached (Connection refused)"),
        (errno.ETIMEDOUT, "cannot be reached (Connection timed out)"),
        (None, "gave no answer within 5 s"),
    ],
)
async def test_probe_of_a_zookeeper_server_without_connection_says_why(
    number: int | None, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise TimeoutError if number is None else OSError(number, "Connect call failed ('a', 1)")

    monkeypatch.setattr(asyncio, "open_connection", fail)
    answers = await probe_zookeeper("a:1,[2001:db8::1]:2", timeout_seconds=5)
    assert answers == {"a:1": answer, "[2001:db8::1]:2": answer}
