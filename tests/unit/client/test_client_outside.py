"""Test that clients outside the network of a cluster dial the outside addresses, and no others."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn, cast

import pytest

from tests.support.eventually import eventually
from tests.support.outside import OUTSIDE_HOST, Outside, metadata, open_client, set_outside
from waltz.client import AnswerLate, ClusterUnreachable
from waltz.client.outside import NoOutsideAddress, OutsideNetwork, reachable_from_outside
from waltz.client.replica_reader import ReplicaReader, WantedRecords
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.outside import delete_outside_addresses
from waltz.net import PLAINTEXT, DialFailed, DialRefused, FrameHandler, TlsMismatch
from waltz.protocol import CLIENT_SERVER
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT
from waltz.testing.zookeeper import MemoryStore

SERVER = "server-0:55180"
PATH = f"{ROOT}/outside"


class Ignore(FrameHandler):
    """The handler of a connection of which nothing is expected."""

    def received(self, bodies: list[bytes]) -> None:
        """Ignore messages."""

    def lost(self, reason: str) -> None:
        """Ignore the end."""


async def dial(network: OutsideNetwork) -> None:
    """Open a connection to the server, and close it."""
    host, port = SERVER.split(":")
    connection = await network.dial(host, int(port), CLIENT_SERVER, Ignore(), PLAINTEXT)
    connection.close()


async def test_client_outside_dials_no_registered_address() -> None:
    async with InProcessCluster(partitions=3, servers=2) as running:
        outside = Outside(running)
        await set_outside(running, outside.forward_all())
        client, _ = await open_client(running, outside)
        for partition in range(3):
            assert await client.append(partition, b"x") == 0
            assert await client.read(partition, 0) == b"x"
            async for transaction in client.stream(partition, until=0, data=True):
                assert transaction.data == b"x"
            assert await client.high_water_mark(partition) == 0
        await client.close()
        assert outside.dialed
        assert {address.partition(":")[0] for address in outside.dialed} == {OUTSIDE_HOST}


@pytest.mark.parametrize("access", [None, "inside"])
async def test_client_inside_ignores_outside_addresses(access: str | None) -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        outside.forwards[SERVER] = SERVER  # This client is inside: the registered address works.
        await set_outside(running, {SERVER: "wrong.example:1"})
        client, store = await open_client(
            running, outside, "inside" if access == "inside" else None
        )
        paths: list[str] = []
        get = store.get

        async def record(path: str, *arguments: object) -> object:
            paths.append(path)
            return await get(path, *arguments)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store, "get", record)
            assert await client.append(0, b"x") == 0
        await client.close()
        assert set(outside.dialed) == {SERVER}
        assert PATH not in paths


async def test_changed_outside_address_is_used_by_the_next_connection() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        first = outside.forward(SERVER)
        await set_outside(running, {SERVER: first})
        client, _ = await open_client(running, outside)
        assert await client.append(0, b"a") == 0
        second = outside.forward(SERVER)
        await set_outside(running, {SERVER: second})
        assert await client.append(0, b"b") == 1
        assert set(outside.dialed) == {first}, "an open connection stays"
        del outside.forwards[first]
        outside.dialed.clear()
        assert running.network.cut("outside")
        assert await client.append(0, b"c") == 2
        assert set(outside.dialed) == {second}
        await client.close()


async def test_client_waits_for_a_missing_outside_address() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        client, _ = await open_client(running, outside)
        append = asyncio.create_task(client.append(0, b"x"))
        await eventually(lambda: "no outside address" in client._request_client.problems())
        assert outside.dialed == []
        await set_outside(running, {SERVER: outside.forward(SERVER)})
        assert await append == 0
        assert client._request_client.problems() == ""
        await client.close()


@pytest.mark.parametrize("some", [False, True])
async def test_missing_outside_address_is_in_the_errors_of_calls(some: bool) -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        if some:
            await set_outside(running, {"server-1:55180": outside.forward(SERVER)})
        client, _ = await open_client(running, outside, seconds=0.05)
        calls = (
            client.append(0, b"x"),
            client.high_water_mark(0),
            client.submit(0, lambda _: pytest.fail("it is not mounted")),
            client.bulk.records(0, 0),
        )
        for call in calls:
            with pytest.raises(ClusterUnreachable) as raised:
                await call
            text = str(raised.value)
            assert f"server {SERVER}: {SERVER} has no outside address in {PATH}" in text
            assert ("nor has any other process" in text) is not some
            assert text.endswith(f"waltz cluster outside set {SERVER}=HOST:PORT")
        assert outside.dialed == []
        await client.close()


async def test_outside_address_that_cannot_be_reached_is_named_with_the_registered_one() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        await set_outside(running, {SERVER: "lb.example:9"})
        client, _ = await open_client(running, outside, seconds=0.05)
        with pytest.raises(AnswerLate) as raised:
            await client.high_water_mark(0)
        assert str(raised.value).endswith(
            f"; not connected: server {SERVER}: cannot reach lb.example:9: Connection refused "
            f"(outside address of {SERVER})"
        )
        await client.close()


class RefusesTls(Outside):
    """A network in which every port answers without TLS."""

    async def dial(self, *_: object) -> NoReturn:
        """See Network."""
        raise TlsMismatch("TLS handshake failed")


async def test_missing_address_and_mismatch_of_tls_are_errors_of_their_own() -> None:
    async with InProcessCluster() as running:
        network = OutsideNetwork(metadata(running), RefusesTls(running))
        with pytest.raises(NoOutsideAddress):
            await dial(network)
        await set_outside(running, {SERVER: "lb.example:9"})
        await eventually(lambda: network._changes > 0)
        with pytest.raises(TlsMismatch, match=SERVER):
            await dial(network)


async def test_refused_outside_address_does_not_say_that_no_process_listens() -> None:
    """A load balancer refuses, too, while the process behind it runs."""
    async with InProcessCluster() as running:
        await set_outside(running, {SERVER: "lb.example:9"})
        with pytest.raises(DialFailed, match=r"lb\.example:9: Connection refused") as raised:
            await dial(OutsideNetwork(metadata(running), Outside(running)))
        assert not isinstance(raised.value, DialRefused)


async def test_known_addresses_are_used_while_zookeeper_has_none() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        known = OutsideAddresses({SERVER: outside.forward(SERVER)})
        network = OutsideNetwork(metadata(running), outside, known)
        await dial(network)
        await set_outside(running, {"a:1": "b:1"})
        await eventually(lambda: network._changes > 0)
        with pytest.raises(NoOutsideAddress):
            await dial(network)


async def test_last_outside_addresses_are_used_while_zookeeper_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("waltz.client.outside._READ_SECONDS", 0.01)
    async with InProcessCluster() as running:
        outside = Outside(running)
        await set_outside(running, {SERVER: outside.forward(SERVER)})
        client, store = await open_client(running, outside)
        assert await client.append(0, b"a") == 0
        running.zookeeper.suspend(store)
        dials = len(outside.dialed)
        assert running.network.cut("outside")
        assert await client.append(0, b"b") == 1
        assert len(outside.dialed) > dials
        assert "did not answer within 0.01 s; using the last ones" in caplog.text
        assert "the outside addresses cannot be read" not in caplog.text, "no attempt has failed"
        running.zookeeper.resume(store)
        await client.close()


async def test_zookeeper_that_never_answered_is_the_reason_of_a_failed_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("waltz.client.outside._READ_SECONDS", 0.01)
    async with InProcessCluster() as running:
        cluster = metadata(running)
        running.zookeeper.suspend(cast(MemoryStore, cluster.store))
        with pytest.raises(DialFailed, match="cannot be read: ZooKeeper did not answer within"):
            await dial(OutsideNetwork(cluster, Outside(running)))


async def test_outside_addresses_that_become_malformed_do_not_replace_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with InProcessCluster() as running:
        outside, cluster = Outside(running), metadata(running)
        await set_outside(running, {SERVER: outside.forward(SERVER)})
        network = OutsideNetwork(cluster, outside)
        await dial(network)
        await cluster.store.set(PATH, b"{}", -1)
        await eventually(lambda: network._changes > 0)
        with caplog.at_level(logging.WARNING):
            await dial(network)
        assert f"OutsideAddresses at {PATH} in ZooKeeper" in caplog.text
        with pytest.raises(DialFailed, match="cannot be read: malformed OutsideAddresses"):
            await dial(OutsideNetwork(cluster, outside))


async def test_outside_addresses_are_read_once_until_they_change() -> None:
    async with InProcessCluster() as running:
        outside, cluster = Outside(running), metadata(running)
        await set_outside(running, {SERVER: outside.forward(SERVER)})
        reads = 0
        get = cluster.store.get

        async def count(*arguments: object) -> object:
            nonlocal reads
            reads += 1
            return await get(*arguments)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "get", count)
            network = OutsideNetwork(cluster, outside)
            await asyncio.gather(*(dial(network) for _ in range(5)))
            assert reads == 1
            await set_outside(running, {SERVER: outside.forward(SERVER)})
            await eventually(lambda: network._changes > 0)
            await dial(network)
            assert reads == 2


async def test_change_during_the_read_is_read_by_the_next_connection() -> None:
    async with InProcessCluster() as running:
        outside, cluster = Outside(running), metadata(running)
        first, second = outside.forward(SERVER), outside.forward(SERVER)
        await set_outside(running, {SERVER: first})
        network = OutsideNetwork(cluster, outside)
        get = cluster.store.get

        async def get_before_a_change(*arguments: object) -> object:
            found = await get(*arguments)  # type: ignore[arg-type]
            await set_outside(running, {SERVER: second})
            await eventually(lambda: network._changes > 0)
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "get", get_before_a_change)
            await dial(network)
        await dial(network)
        assert outside.dialed == [first, second]


async def test_replicas_are_read_by_the_outside_addresses_of_storages() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        async with running.connect() as client:
            last = await client.append(0, b"x")
        await set_outside(running, outside.forward_all())
        store = running.zookeeper.connect()
        replicas = ReplicaReader(cast(KazooStore, store), ROOT, PLAINTEXT, "outside", outside)
        wanted = WantedRecords(0, 0, last, max_records=10, max_bytes=1000)
        found = await replicas.read_records(wanted)
        assert found is not None
        assert found.count == 1
        assert {address.partition(":")[0] for address in outside.dialed} == {OUTSIDE_HOST}
        await replicas.close()


async def test_opening_waits_until_a_server_has_an_outside_address() -> None:
    async with InProcessCluster() as running:
        cluster = metadata(running)
        await set_outside(running, {"other:1": "lb.example:1"})
        waiting = asyncio.create_task(reachable_from_outside(cluster, None))
        await asyncio.sleep(0)
        assert not waiting.done()
        await set_outside(running, {SERVER: "lb.example:2"})
        assert await waiting == {SERVER: "lb.example:2"}


async def test_opening_waits_for_the_servers_that_are_registered_now() -> None:
    """The server that was registered at first has gone, and another has come."""
    async with InProcessCluster(servers=2) as running:
        cluster = metadata(running)
        waiting = asyncio.create_task(reachable_from_outside(cluster, None))
        await asyncio.sleep(0)
        await running.kill_server(0)
        new = ServerDescriptor(9, "10.0.0.9", 55180)
        await cluster.store.create(
            cluster.paths.new_server_descriptor, new.encode(), ephemeral=True, sequence=True
        )
        assert not waiting.done()
        await set_outside(running, {"10.0.0.9:55180": "lb.example:9"})
        assert await waiting == {"10.0.0.9:55180": "lb.example:9"}


async def test_opening_without_any_outside_address_fails_with_the_remedy() -> None:
    async with InProcessCluster(servers=2) as running:
        with pytest.raises(ClusterUnreachable) as raised:
            await reachable_from_outside(metadata(running), 0.05)
        assert str(raised.value) == (
            f"{SERVER}, server-1:55180 have no outside address in {PATH} in ZooKeeper, nor has any "
            "other process: on Kubernetes, check that the access from outside is open and ready; "
            "in the network of the cluster, use the access inside; or set the address with: waltz "
            f"cluster outside set {SERVER}=HOST:PORT"
        )


async def test_opening_with_malformed_outside_addresses_names_the_znode() -> None:
    async with InProcessCluster() as running:
        cluster = metadata(running)
        await cluster.store.create(PATH, b"x")
        with pytest.raises(ClusterUnreachable, match=f"OutsideAddresses at {PATH} in ZooKeeper"):
            await reachable_from_outside(cluster, None)


async def test_opening_says_that_zookeeper_did_not_answer() -> None:
    async with InProcessCluster() as running:
        cluster = metadata(running)
        running.zookeeper.suspend(cast(MemoryStore, cluster.store))
        with pytest.raises(ClusterUnreachable, match=r"not answer within 0\.01 s"):
            await reachable_from_outside(cluster, 0.01)


async def test_client_outside_follows_a_partition_to_another_server() -> None:
    async with InProcessCluster(servers=2) as running:
        outside = Outside(running)
        await set_outside(running, outside.forward_all())
        client, _ = await open_client(running, outside)
        assert await client.append(0, b"a") == 0
        owner = next(
            number
            for number, server in enumerate(running.servers)
            if outside.forwards[outside.dialed[0]].startswith(f"{server.host}:")
        )
        await running.kill_server(owner)
        assert await client.append(0, b"b") == 1
        assert {address.partition(":")[0] for address in outside.dialed} == {OUTSIDE_HOST}
        await client.close()


async def test_removed_outside_addresses_are_not_dialed_any_more() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        await set_outside(running, {SERVER: outside.forward(SERVER)})
        client, _ = await open_client(running, outside)
        assert await client.append(0, b"a") == 0
        await delete_outside_addresses(metadata(running))
        outside.dialed.clear()
        assert running.network.cut("outside")
        await eventually(lambda: "no outside address" in client._request_client.problems())
        assert outside.dialed == []
        await client.close()
