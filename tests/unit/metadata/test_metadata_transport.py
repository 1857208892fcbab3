"""Test what servers declare about TLS in ZooKeeper, and what clients conclude from it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

import pytest

from tests.support.eventually import eventually
from waltz.admin.rescue import back_up, restore_cluster
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.core.server_transport import ServerTransport, Transport, declare
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.membership import ServerMembership
from waltz.metadata.transport import declare_transport, read_transport, tls_of_cluster
from waltz.net import PLAINTEXT, TlsConfig
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/test"
PATH = f"{ROOT}/transport"
TLS, PLAIN = Transport.TLS, Transport.PLAINTEXT
A, B, C = "a:1", "b:1", "c:1"


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
async def cluster(zookeeper: MemoryZooKeeper) -> Cluster:
    store = zookeeper.connect()
    await create_cluster(store, ROOT, "test", 3, key=uuid.UUID(int=1))
    return Cluster(store, ROOT)


async def register(cluster: Cluster, server: str) -> None:
    """Create the znode of a server that declares nothing, as one of Waltz 0.13.2."""
    host, _, port = server.rpartition(":")
    data = ServerDescriptor(1, host, int(port)).encode()
    path = cluster.paths.new_server_descriptor
    await cluster.store.create(path, data, ephemeral=True, sequence=True)


async def declared(cluster: Cluster) -> ServerTransport | None:
    stored = await read_transport(cluster)
    return None if stored is None else stored.value


@pytest.mark.parametrize(
    ("before", "own", "others", "expected"),
    [
        (None, PLAIN, {}, PLAIN),
        (None, TLS, {}, TLS),
        # A server without a declaration may use TLS.
        (None, PLAIN, {B: None}, TLS),
        # A rolling change from TLS to plaintext: the last server decides.
        (TLS, PLAIN, {B: TLS}, TLS),
        (TLS, PLAIN, {B: PLAIN, C: TLS}, TLS),
        (TLS, PLAIN, {B: PLAIN, C: PLAIN}, PLAIN),
        # A rolling change from plaintext to TLS: the first server decides.
        (PLAIN, TLS, {B: PLAIN}, TLS),
        # A server that is not registered for a moment loses its declaration.
        (PLAIN, PLAIN, {B: None}, PLAIN),
    ],
)
def test_declare_plaintext_needs_all_registered_servers(
    before: Transport | None,
    own: Transport,
    others: Mapping[str, Transport | None],
    expected: Transport,
) -> None:
    known = {server: each for server, each in others.items() if each is not None}
    stored = None if before is None else ServerTransport(before, known)
    after = declare(stored, A, own, {A, *others})
    assert after == ServerTransport(expected, {A: own} | known)


def test_declare_drops_servers_that_have_left() -> None:
    before = ServerTransport(TLS, {A: TLS, B: TLS})
    assert declare(before, A, PLAIN, set()) == ServerTransport(PLAIN, {A: PLAIN})


def test_transport_is_decoded_as_encoded_and_other_keys_are_ignored() -> None:
    value = ServerTransport(PLAIN, {B: PLAIN, A: PLAIN})
    assert ServerTransport.decode(value.encode()) == value
    fields = json.loads(value.encode())
    assert fields == {"format": 1, "client_port": "plaintext", "servers": {A: PLAIN, B: PLAIN}}
    assert ServerTransport.decode(json.dumps(fields | {"new": 1}).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'"tls"',
        b"[" * 100_000,
        b'{"format": 2, "client_port": "tls", "servers": {}}',
        b'{"format": 1, "client_port": "ssl", "servers": {}}',
        b'{"format": 1, "client_port": ["tls"], "servers": {}}',
        b'{"format": 1, "client_port": "tls", "servers": []}',
        b'{"format": 1, "client_port": "tls", "servers": {"a:1": 1}}',
        b'{"format": 1, "client_port": "tls"}',
    ],
)
async def test_malformed_transport_is_an_error_that_names_the_znode(
    cluster: Cluster, data: bytes
) -> None:
    await cluster.store.create(PATH, data)
    with pytest.raises(MalformedMetadata, match=r"/test/transport in ZooKeeper.*--tls"):
        await tls_of_cluster(cluster, None)
    # Settings that are given need no declaration.
    assert await tls_of_cluster(cluster, PLAINTEXT) == PLAINTEXT


async def test_malformed_transport_is_kept_by_a_server_and_logged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.store.create(PATH, b'{"format": 2}')
    await declare_transport(cluster, A, PLAIN)
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.data == b'{"format": 2}'
    assert "server a:1: failed to declare" in caplog.text


async def test_tls_is_on_without_a_declaration_and_given_settings_win(cluster: Cluster) -> None:
    assert await tls_of_cluster(cluster, None) == TlsConfig()
    await declare_transport(cluster, A, PLAIN)
    assert await tls_of_cluster(cluster, None) == PLAINTEXT
    named = TlsConfig(server_name="x")
    assert await tls_of_cluster(cluster, named) is named
    await declare_transport(cluster, A, TLS)
    assert await tls_of_cluster(cluster, None) == TlsConfig()
    assert await tls_of_cluster(cluster, PLAINTEXT) == PLAINTEXT


async def test_plaintext_server_does_not_turn_tls_off_for_a_registered_one(
    cluster: Cluster,
) -> None:
    await declare_transport(cluster, A, TLS)
    await register(cluster, A)
    await declare_transport(cluster, B, PLAIN)
    assert await declared(cluster) == ServerTransport(TLS, {A: TLS, B: PLAIN})


async def test_unchanged_declaration_writes_nothing(cluster: Cluster) -> None:
    await declare_transport(cluster, A, PLAIN)
    await declare_transport(cluster, A, PLAIN)
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.version == 0


async def test_declaration_is_repeated_after_a_conflict(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server joins and declares after this server has read the members."""
    membership = cluster.membership
    raced: list[bool] = []

    async def membership_after_a_race() -> object:
        found = await membership()
        if not raced:
            raced.append(True)
            await register(cluster, A)
            await declare_transport(cluster, A, TLS)
        return found

    monkeypatch.setattr(cluster, "membership", membership_after_a_race)
    await declare_transport(cluster, B, PLAIN)
    assert await declared(cluster) == ServerTransport(TLS, {A: TLS, B: PLAIN})


async def test_server_with_tls_declares_again_after_it_has_registered(
    zookeeper: MemoryZooKeeper, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plaintext server that saw the members just before has left the declaration out."""
    store = zookeeper.connect()
    create = store.create

    async def create_after_another_server(path: str, data: bytes | None, **rest: bool) -> str:
        if path == cluster.paths.new_server_descriptor:
            await declare_transport(cluster, B, PLAIN)
            assert await declared(cluster) == ServerTransport(PLAIN, {B: PLAIN})
        return await create(path, data, **rest)

    monkeypatch.setattr(store, "create", create_after_another_server)
    server = ServerMembership(Cluster(store, ROOT), ("a", 1), lambda _: None, uses_tls=True)
    await server.join()
    await eventually(lambda: server.has_joined)
    assert await declared(cluster) == ServerTransport(TLS, {A: TLS})
    await server.leave()


async def test_transport_is_in_the_backup_and_deleted_with_the_cluster(cluster: Cluster) -> None:
    await declare_transport(cluster, A, PLAIN)
    backup = await back_up(cluster)
    assert backup.transport == ServerTransport(PLAIN, {A: PLAIN})
    await delete_cluster(cluster.store, ROOT, "test")
    assert await cluster.store.get(PATH) is None
    await restore_cluster(cluster, backup)
    assert await declared(cluster) == backup.transport


async def test_backup_is_made_without_a_malformed_transport(cluster: Cluster) -> None:
    await cluster.store.create(PATH, b"x")
    assert (await back_up(cluster)).transport is None
