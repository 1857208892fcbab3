"""Test what servers declare about TLS in ZooKeeper, and what clients conclude from it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.eventually import eventually
from waltz.admin.rescue import back_up, restore_cluster
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.core.server_transport import ServerTransport, Transport, declare, for_clients
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.membership import ServerMembership
from waltz.metadata.transport import declare_transport, read_transport, tls_of_cluster
from waltz.metadata.zookeeper_access import AccessDenied
from waltz.net import PLAINTEXT, TlsConfig
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

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


class JoiningServer:
    """A server with TLS that joins just before one operation of another connection.

    `pause` is the ``pause`` of the other connection, ``at`` the number of its operation, from 1 on.
    """

    def __init__(self, cluster: Cluster, server: str, at: int) -> None:
        self.has_joined = False
        self._cluster = cluster
        self._server = server
        self._at = at
        self._operations = 0

    async def pause(self) -> None:
        """Count an operation of the other connection, and join before the chosen one."""
        self._operations += 1
        if self._operations == self._at:
            await self.join()

    async def join(self) -> None:
        """Register, and declare TLS again, as a server does."""
        self.has_joined = True
        await register(self._cluster, self._server)
        await declare_transport(self._cluster, self._server, TLS, has_registered=True)


async def join(
    zookeeper: MemoryZooKeeper, server: str, own: Transport, store: MemoryStore | None = None
) -> ServerMembership:
    """Register a server that declares ``own``, and wait until it has applied an assignment."""
    host, _, port = server.rpartition(":")
    membership = ServerMembership(
        Cluster(store or zookeeper.connect(), ROOT),
        (host, int(port)),
        lambda _: None,
        uses_tls=own is TLS,
    )
    await membership.join()
    await eventually(lambda: membership.has_joined)
    await turns()
    return membership


async def turns() -> None:
    """Let all tasks run until each waits for something."""
    for _ in range(100):
        await asyncio.sleep(0)


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


SERVERS = st.sampled_from([A, B, C])
STEPS = st.lists(
    st.tuples(SERVERS, st.sampled_from(Transport), st.sets(SERVERS)), min_size=1, max_size=12
)
"""Declarations: a server, what it uses, and the servers that are registered at that time."""


@given(STEPS)
def test_declare_keeps_its_rules_in_any_order(
    steps: list[tuple[str, Transport, set[str]]],
) -> None:
    before: ServerTransport | None = None
    for server, own, registered in steps:
        after = declare(before, server, own, registered)
        members = {server, *registered}
        assert after.servers[server] is own
        assert after.servers.keys() <= members, "servers that have left are forgotten"
        was_plaintext = before is not None and before.clients is PLAIN
        if TLS in after.servers.values():
            assert after.clients is TLS, "one member with TLS is enough"
        elif was_plaintext or after.servers.keys() == members:
            assert after.clients is PLAIN
        else:
            assert after.clients is TLS, "a member that has declared nothing may use TLS"
        assert declare(after, server, own, registered) == after
        before = after


@given(st.sampled_from(Transport), st.dictionaries(SERVERS, st.sampled_from(Transport)))
def test_declare_never_keeps_plaintext_beside_a_member_with_tls(
    clients: Transport, servers: dict[str, Transport]
) -> None:
    """Data that no server writes, such as those of a person, are corrected by the next server."""
    after = declare(ServerTransport(clients, servers), A, PLAIN, {A, B, C})
    has_tls = TLS in {servers.get(B), servers.get(C)}
    assert not has_tls or after.clients is TLS


@given(st.sampled_from(Transport), st.dictionaries(SERVERS, st.sampled_from(Transport)), STEPS)
def test_client_uses_plaintext_only_if_no_registered_server_may_use_tls(
    clients: Transport,
    servers: dict[str, Transport],
    steps: list[tuple[str, Transport, set[str]]],
) -> None:
    declared = ServerTransport(clients, servers)
    for _, _, registered in steps:
        entries = [servers.get(each) for each in registered]
        lowered = bool(entries) and all(each is PLAIN for each in entries)
        assert for_clients(declared, registered) is (PLAIN if lowered else clients)


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


async def test_malformed_transport_is_kept_by_a_server_that_joins_and_logs_it_once(
    zookeeper: MemoryZooKeeper, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.store.create(PATH, b'{"format": 2}')
    server = await join(zookeeper, A, TLS)
    other = await join(zookeeper, B, PLAIN)
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.data == b'{"format": 2}'
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [error.partition(" in ZooKeeper")[0] for error in errors] == [
        "server 1: failed to declare",
        "server 2: failed to declare",
    ]
    assert all(f"ServerTransport at {PATH} in ZooKeeper" in error for error in errors)
    await server.leave()
    await other.leave()


async def test_server_without_the_permission_to_declare_joins_and_logs_it(
    zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture, cluster: Cluster
) -> None:
    store = zookeeper.connect()
    create = store.create

    async def refuse(path: str, data: bytes | None, **rest: bool) -> str:
        if path == PATH:
            raise AccessDenied(f"{path} cannot be written")
        return await create(path, data, **rest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "create", refuse)
        server = await join(zookeeper, A, TLS, store)
    assert "server 1: failed to declare in ZooKeeper that it uses tls" in caplog.text
    assert await declared(cluster) is None
    await server.leave()


async def test_tls_is_on_without_a_declaration_and_given_settings_win(cluster: Cluster) -> None:
    assert await tls_of_cluster(cluster, None) == TlsConfig()
    await declare_transport(cluster, A, PLAIN)
    assert await tls_of_cluster(cluster, None) == PLAINTEXT
    named = TlsConfig(server_name="x")
    assert await tls_of_cluster(cluster, named) is named
    await declare_transport(cluster, A, TLS)
    assert await tls_of_cluster(cluster, None) == TlsConfig()
    assert await tls_of_cluster(cluster, PLAINTEXT) == PLAINTEXT


@pytest.mark.parametrize("registers", [False, True])
async def test_server_with_tls_that_dies_without_partitions_leaves_plaintext(
    zookeeper: MemoryZooKeeper, cluster: Cluster, registers: bool
) -> None:
    """It dies between its declaration and its registration, or after its registration.

    The other server computes no assignment, so it does not declare again.
    """
    await declare_transport(cluster, A, PLAIN)
    await register(cluster, A)
    store = zookeeper.connect()
    other = Cluster(store, ROOT)
    await declare_transport(other, B, TLS)
    if registers:
        await register(other, B)
        assert await tls_of_cluster(cluster, None) == TlsConfig()
    zookeeper.abandon(store)
    assert await declared(cluster) == ServerTransport(TLS, {A: PLAIN, B: TLS})
    assert await tls_of_cluster(cluster, None) == PLAINTEXT
    # A server of Waltz 0.13.2 declares nothing, and may use TLS.
    await register(cluster, C)
    assert await tls_of_cluster(cluster, None) == TlsConfig()


@pytest.mark.parametrize("at", range(1, 6))
async def test_client_uses_tls_if_a_server_with_tls_registers_while_it_reads(
    zookeeper: MemoryZooKeeper, cluster: Cluster, at: int
) -> None:
    await declare_transport(cluster, A, PLAIN)
    await register(cluster, A)
    await declare_transport(cluster, B, TLS)
    joining = JoiningServer(cluster, B, at)
    client = Cluster(zookeeper.connect(pause=joining.pause), ROOT)
    seen = await tls_of_cluster(client, None)
    # The operations are: the declaration, the assignment, the list of members, the one member.
    registered_before_the_list = at <= 3
    assert seen == (TlsConfig() if registered_before_the_list else PLAINTEXT)


async def test_client_uses_the_declaration_if_the_members_are_malformed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await declare_transport(cluster, B, TLS)
    await register(cluster, B)
    await declare_transport(cluster, A, PLAIN)
    await cluster.store.create(
        cluster.paths.new_server_descriptor, b"x", ephemeral=True, sequence=True
    )
    assert await tls_of_cluster(cluster, None) == TlsConfig()
    assert "failed to read which servers are registered" in caplog.text


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


@pytest.mark.parametrize("at", range(1, 7))
async def test_plaintext_server_that_read_the_members_before_does_not_turn_tls_off(
    zookeeper: MemoryZooKeeper, cluster: Cluster, at: int
) -> None:
    """A server with TLS registers while another one declares plaintext.

    The operations of the other one are: the declaration, the assignment, the list of members, the
    members, the write. The declaration of the server with TLS is there before, so it is equal.
    """
    await declare_transport(cluster, A, TLS)
    joining = JoiningServer(cluster, A, at)
    await declare_transport(Cluster(zookeeper.connect(pause=joining.pause), ROOT), B, PLAIN)
    if not joining.has_joined:
        await joining.join()
    found = await declared(cluster)
    assert found is not None
    assert (found.clients, found.servers[A]) == (TLS, TLS)


@pytest.mark.parametrize("answered", [True, False])
async def test_server_declares_before_and_after_it_has_registered(
    zookeeper: MemoryZooKeeper, cluster: Cluster, answered: bool
) -> None:
    """A plaintext server that saw the members just before has left the declaration out."""
    store = zookeeper.connect()
    create, write = store.create, store.set
    seen: list[ServerTransport | None] = []

    async def create_after_another_server(path: str, data: bytes | None, **rest: bool) -> str:
        if path == cluster.paths.new_server_descriptor:
            seen.append(await declared(cluster))
            await declare_transport(cluster, B, PLAIN)
            seen.append(await declared(cluster))
            if not answered:
                store.lose_next_write(executed=True)
        return await create(path, data, **rest)

    async def write_and_look(path: str, data: bytes, version: int) -> int:
        if path == cluster.paths.server_descriptors:
            seen.append(await declared(cluster))
        return await write(path, data, version)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "create", create_after_another_server)
        patched.setattr(store, "set", write_and_look)
        server = await join(zookeeper, A, TLS, store)
    before, without, after = seen
    assert before == after == ServerTransport(TLS, {A: TLS})
    assert without == ServerTransport(PLAIN, {B: PLAIN})
    await server.leave()


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
async def test_declaration_whose_answer_was_lost_is_made_once(
    zookeeper: MemoryZooKeeper, cluster: Cluster, executed: bool, is_first: bool
) -> None:
    if not is_first:
        await declare_transport(cluster, B, TLS)
        await register(cluster, B)
    store = zookeeper.connect()
    store.lose_next_write(executed=executed)
    await declare_transport(Cluster(store, ROOT), A, PLAIN)
    expected = ServerTransport(PLAIN, {A: PLAIN}) if is_first else None
    assert await declared(cluster) == (expected or ServerTransport(TLS, {A: PLAIN, B: TLS}))
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.version == (0 if is_first else 1)


async def test_last_server_with_tls_that_dies_leaves_plaintext_to_the_others(
    zookeeper: MemoryZooKeeper, cluster: Cluster
) -> None:
    store = zookeeper.connect()
    await join(zookeeper, A, TLS, store)
    others = [await join(zookeeper, server, PLAIN) for server in (B, C)]
    assert await declared(cluster) == ServerTransport(TLS, {A: TLS, B: PLAIN, C: PLAIN})
    zookeeper.abandon(store)
    await turns()
    assert await declared(cluster) == ServerTransport(PLAIN, {B: PLAIN, C: PLAIN})
    for server in others:
        await server.leave()


@pytest.mark.parametrize(("old", "new"), [(PLAIN, TLS), (TLS, PLAIN)])
async def test_rolling_change_uses_tls_while_a_server_does(
    zookeeper: MemoryZooKeeper, cluster: Cluster, old: Transport, new: Transport
) -> None:
    """Each server stops, leaves the cluster, and starts again at its address."""
    names = (A, B, C)
    servers = {name: await join(zookeeper, name, old) for name in names}
    uses = dict.fromkeys(names, old)
    for name in names:
        await servers[name].leave()
        await turns()
        del uses[name]
        found = await declared(cluster)
        assert found is not None
        assert found.clients is (TLS if TLS in uses.values() else PLAIN)
        uses[name] = new
        servers[name] = await join(zookeeper, name, new)
        expected = TLS if TLS in uses.values() else PLAIN
        assert await declared(cluster) == ServerTransport(expected, uses)
    for server in servers.values():
        await server.leave()


async def test_server_whose_session_expires_declares_again(
    zookeeper: MemoryZooKeeper, cluster: Cluster
) -> None:
    store = zookeeper.connect()
    server = await join(zookeeper, A, TLS, store)
    zookeeper.expire(store)
    # Until the server registers again, a plaintext server is alone.
    other = await join(zookeeper, B, PLAIN)
    assert await declared(cluster) == ServerTransport(PLAIN, {B: PLAIN})
    zookeeper.resume(store)
    await turns()
    assert await declared(cluster) == ServerTransport(TLS, {A: TLS, B: PLAIN})
    await server.leave()
    await other.leave()


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(Transport), min_size=2, max_size=4),
)
def test_servers_that_register_at_once_agree_in_any_order(seed: int, uses: list[Transport]) -> None:
    """Operations interleave at random; answers are lost, and sessions expire."""
    asyncio.run(_register_at_once(random.Random(seed), uses))


async def _register_at_once(chance: random.Random, uses: list[Transport]) -> None:
    zookeeper = MemoryZooKeeper()
    await create_cluster(zookeeper.connect(), ROOT, "test", 3, key=uuid.UUID(int=1))

    async def pause() -> None:
        for _ in range(chance.randrange(1, 8)):
            await asyncio.sleep(0)

    stores, servers = [], []
    for number, own in enumerate(uses):
        store = zookeeper.connect(pause=pause)
        server = ServerMembership(
            Cluster(store, ROOT), ("s", number), lambda _: None, uses_tls=own is TLS
        )
        if chance.random() < 0.3:
            store.lose_next_write(executed=chance.random() < 0.5)
        stores.append(store)
        servers.append(server)
    joining = [asyncio.create_task(server.join()) for server in servers]
    for _ in range(chance.randrange(300)):
        await asyncio.sleep(0)
    expiring = chance.choice(stores)
    zookeeper.expire(expiring)
    await asyncio.sleep(0)
    zookeeper.resume(expiring)
    await asyncio.gather(*joining)
    await eventually(lambda: all(server.has_joined for server in servers))
    for _ in range(2000):
        await asyncio.sleep(0)
    found = await declared(Cluster(zookeeper.connect(), ROOT))
    expected = {f"s:{number}": own for number, own in enumerate(uses)}
    assert found == ServerTransport(TLS if TLS in uses else PLAIN, expected)
    for server in servers:
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
