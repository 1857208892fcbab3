"""Test servers that join, leave and lose sessions, and clients that follow them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping

import pytest

from tests.support.eventually import eventually
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment
from waltz.metadata.core.membership_steps import Endpoint
from waltz.metadata.core.policy import PolicyError
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.membership import ClientMembership, ServerMembership
from waltz.metadata.store import ANY_VERSION, OperationTimedOut, SessionState
from waltz.metadata.zookeeper_access import AccessDenied
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

ROOT = "/waltz/test"
PARTITIONS = 4


class Server:
    """A server's membership with its own session, and the partitions it last got."""

    def __init__(self, zookeeper: MemoryZooKeeper, port: int) -> None:
        self.store: MemoryStore = zookeeper.connect()
        self.partitions: Mapping[int, int] = {}
        self.membership = ServerMembership(
            Cluster(self.store, ROOT),
            ("localhost", port),
            self._own,
            shuffle=random.Random(port).shuffle,
        )

    def _own(self, partitions: Mapping[int, int]) -> None:
        self.partitions = partitions


class World:
    """A cluster in memory with servers and clients."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.admin = Cluster(self.zookeeper.connect(), ROOT)
        self.servers: list[Server] = []
        self.clients: list[ClientMembership] = []

    async def server(self) -> Server:
        server = Server(self.zookeeper, 6001 + len(self.servers))
        self.servers.append(server)
        await server.membership.join()
        return server

    def client(self) -> list[Mapping[Endpoint, tuple[OwnedPartition, ...]]]:
        """Start a client and return the list of all endpoints it gets."""
        seen: list[Mapping[Endpoint, tuple[OwnedPartition, ...]]] = []
        client = ClientMembership(Cluster(self.zookeeper.connect(), ROOT), seen.append)
        client.start()
        self.clients.append(client)
        return seen

    async def await_settled(self, *sizes: int) -> None:
        """Wait until the servers own ``sizes`` partitions each, and together all."""

        def done() -> bool:
            owned = [p for s in self.servers for p in s.partitions]
            found = tuple(len(s.partitions) for s in self.servers)
            return found == sizes and sorted(owned) == list(range(PARTITIONS))

        await eventually(done, 5)

    async def close(self) -> None:
        for client in self.clients:
            await client.stop()
        for server in self.servers:
            if server.store.health.state is not SessionState.CONNECTED:
                self.zookeeper.resume(server.store)
            await server.membership.leave()
            await server.store.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await create_cluster(world.admin.store, ROOT, "test", PARTITIONS, key=uuid.uuid4())
    yield world
    await world.close()


async def test_servers_that_join_share_the_partitions(world: World) -> None:
    first = await world.server()
    await world.await_settled(4)
    assert first.membership.server_id == 1
    assert set(first.partitions.values()) == {1}
    second = await world.server()
    await world.await_settled(2, 2)
    assert set(first.partitions.values()) == {1}
    assert set(second.partitions.values()) == {2}


async def test_log_line_of_a_server_that_joins_has_its_address(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waltz.metadata.membership")
    await world.server()
    await world.await_settled(4)
    assert "server 1: joined with the address localhost:6001" in caplog.messages


async def test_server_without_partitions_has_joined_only_when_it_is_in_an_assignment(
    world: World,
) -> None:
    for _ in range(PARTITIONS):
        await world.server()
    last = await world.server()
    assert last.membership.server_id == PARTITIONS + 1
    assert not last.membership.has_joined
    await eventually(lambda: last.membership.has_joined, 5)
    await world.await_settled(1, 1, 1, 1, 0)


async def test_one_membership_change_writes_one_assignment(world: World) -> None:
    await world.server()
    await world.await_settled(4)
    await world.server()
    await world.await_settled(2, 2)
    membership = await world.admin.membership()
    assert (membership.version, membership.cversion, membership.consistent) == (2, 2, True)


async def test_server_that_leaves_hands_over_at_once(world: World) -> None:
    first, second = await world.server(), await world.server()
    await world.await_settled(2, 2)
    moving = dict(first.partitions)
    await first.membership.leave()
    await eventually(lambda: len(second.partitions) == 4)
    assert {p: second.partitions[p] for p in moving} == {p: g + 1 for p, g in moving.items()}
    await first.membership.finished()


async def test_suspended_server_keeps_its_partitions(world: World) -> None:
    first, second = await world.server(), await world.server()
    await world.await_settled(2, 2)
    kept = dict(second.partitions)
    world.zookeeper.suspend(second.store)
    third = await world.server()
    await eventually(lambda: third.partitions)
    assert second.partitions == kept
    world.zookeeper.resume(second.store)
    await eventually(lambda: second.partitions != kept)
    assert len(first.partitions) + len(second.partitions) + len(third.partitions) == PARTITIONS
    membership = await world.admin.membership()
    assert [m.descriptor.server_id for m in membership.members] == [1, 2, 3]


async def test_suspended_first_server_blocks_assignments_until_its_session_expires(
    world: World,
) -> None:
    """The server may still run; the next server writes assignments only after its session ends."""
    first, second = await world.server(), await world.server()
    await world.await_settled(2, 2)
    world.zookeeper.suspend(first.store)
    third = await world.server()
    await eventually(lambda: third.membership.server_id == 3)
    world.zookeeper.expire(first.store)
    await eventually(lambda: len(second.partitions) == len(third.partitions) == 2)


async def test_server_whose_session_expires_rejoins_with_the_same_id(world: World) -> None:
    first, second = await world.server(), await world.server()
    await world.await_settled(2, 2)
    world.zookeeper.suspend(first.store)
    world.zookeeper.expire(first.store)
    await eventually(lambda: len(second.partitions) == 4)
    world.zookeeper.resume(first.store)
    await eventually(lambda: len(second.partitions) == 2)
    await world.await_settled(2, 2)
    membership = await world.admin.membership()
    assert sorted(m.descriptor.server_id for m in membership.members) == [1, 2]


async def test_join_whose_answer_was_lost_creates_one_node(world: World) -> None:
    server = Server(world.zookeeper, 6001)
    world.servers.append(server)
    created = asyncio.Event()

    def on_child() -> None:
        created.set()

    await world.admin.store.children(world.admin.paths.server_descriptors, on_child)
    create = server.store.create

    async def create_and_lose(
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        anyone_may_write: bool = False,
    ) -> str:
        if not created.is_set():
            server.store.lose_next_answer()
        return await create(path, data, ephemeral=ephemeral, sequence=sequence)

    server.store.create = create_and_lose  # type: ignore[method-assign]
    await server.membership.join()
    await world.await_settled(4)
    assert len((await world.admin.membership()).members) == 1


async def test_join_without_an_answer_is_repeated_while_nothing_else_changes(
    world: World,
) -> None:
    """The connection stays open, so neither a reconnection nor a watch wakes the server."""
    server = Server(world.zookeeper, 6001)
    world.servers.append(server)
    create = server.store.create
    failures = [OperationTimedOut("no answer")]

    async def create_later(path: str, data: bytes | None, **options: bool) -> str:
        if failures:
            raise failures.pop()
        return await create(path, data, **options)

    server.store.create = create_later  # type: ignore[method-assign]
    await server.membership.join()
    await world.await_settled(4)


async def test_prefer_moves_a_partition(world: World) -> None:
    first, second = await world.server(), await world.server()
    await world.await_settled(2, 2)
    wanted, generation = next(iter(first.partitions.items()))
    await second.membership.prefer([wanted])
    await eventually(lambda: second.partitions.get(wanted) == generation + 1)
    await world.await_settled(2, 2)
    membership = await world.admin.membership()
    assert membership.servers()[second.membership.server_id].preferred == (wanted,)
    assert membership.consistent


async def test_concurrent_preferences_both_succeed(world: World) -> None:
    """Two servers prefer the same partition: both calls return, the lower id owns it."""
    first, second = await world.server(), await world.server()
    await world.await_settled(2, 2)
    async with asyncio.timeout(60):
        await asyncio.gather(first.membership.prefer([3]), second.membership.prefer([3]))
    await eventually(lambda: 3 in first.partitions)
    await world.await_settled(2, 2)


async def test_preference_survives_a_lost_session(world: World) -> None:
    server = await world.server()
    await world.await_settled(4)
    world.zookeeper.expire(server.store)
    preferring = asyncio.create_task(server.membership.prefer([2]))
    world.zookeeper.resume(server.store)
    await preferring
    node = world.admin.paths.server_descriptor("s_0000000001")
    await eventually(lambda: node in world.zookeeper.dump())
    assert (await world.admin.membership()).servers()[1].preferred == (2,)


async def test_damaged_assignment_fails_the_change_and_keeps_the_membership(world: World) -> None:
    """0.13.2 retries without end. Here the call fails, and the server continues after a repair."""
    server = await world.server()
    await world.await_settled(4)
    membership = await world.admin.membership()
    lossy = PartitionAssignment(membership.cversion, PARTITIONS, {1: (OwnedPartition(0, 1),)})
    version = await world.admin.write_partition_assignment(lossy, membership.version)
    with pytest.raises(PolicyError, match="partition 1 has no owner"):
        await server.membership.prefer([2])
    await eventually(lambda: server.partitions == {0: 1})
    await world.admin.write_partition_assignment(membership.assignment, version)
    await world.await_settled(4)


async def test_preference_whose_assignment_may_not_be_written_is_undone(world: World) -> None:
    """Otherwise the next assignment would use a preference whose change was refused."""
    server = await world.server()
    await world.await_settled(4)
    await server.membership.prefer([1])
    write = server.store.set

    async def deny_assignment(path: str, data: bytes, version: int) -> int:
        if path == world.admin.paths.server_descriptors:
            raise AccessDenied(path)
        return await write(path, data, version)

    server.store.set = deny_assignment  # type: ignore[method-assign]
    with pytest.raises(AccessDenied):
        await server.membership.prefer([1, 2])
    assert server.membership.preferred == {1}
    assert (await world.admin.membership()).servers()[1].preferred == (1,)


async def test_client_follows_joining_and_leaving_servers(world: World) -> None:
    seen = world.client()
    first = await world.server()
    await eventually(lambda: seen)
    owned = seen[-1]["localhost", 6001]
    assert dict(owned) == first.partitions
    second = await world.server()
    await eventually(lambda: len(seen[-1]) == 2)
    assert sorted(o.partition for owned in seen[-1].values() for o in owned) == [0, 1, 2, 3]
    await first.membership.leave()
    await eventually(lambda: seen[-1].keys() == {("localhost", 6002)})
    await second.membership.leave()
    await eventually(lambda: seen[-1] == {})


async def test_server_whose_node_is_deleted_creates_it_again(world: World) -> None:
    server = await world.server()
    await world.await_settled(4)
    paths = world.admin.paths
    await world.admin.store.delete(paths.server_descriptor("s_0000000000"))
    await eventually(lambda: paths.server_descriptor("s_0000000001") in world.zookeeper.dump())
    await world.await_settled(4)
    assert server.membership.server_id == 1


async def test_membership_of_a_deleted_cluster_ends(world: World) -> None:
    server = await world.server()
    await world.await_settled(4)
    world.zookeeper.clear()
    with pytest.raises(NoCluster, match="there is no Waltz cluster"):
        await server.membership.finished()
    world.servers.clear()
    await server.store.close()


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "damaged"])
async def test_leave_of_a_deleted_or_damaged_cluster_raises_no_error(
    world: World, deleted: bool
) -> None:
    """The rest of the server's stop follows: it answers open appends and closes its session."""
    server = await world.server()
    await world.await_settled(4)
    if deleted:
        world.zookeeper.clear()
    else:
        store = world.zookeeper.connect()
        await store.set(world.admin.paths.server_descriptors, b"damaged", ANY_VERSION)
    await server.membership.leave()
    world.servers.clear()
    await server.store.close()


async def test_leave_without_zookeeper_times_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz.metadata.membership._LEAVE_TIMEOUT_S", 0.05)
    server = await world.server()
    await world.await_settled(4)
    world.zookeeper.suspend(server.store)
    await server.membership.leave()
    assert len((await world.admin.membership()).members) == 1


class Faults:
    """Makes servers join, leave, hang and lose their sessions, chosen by a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(seed)
        self._owner_of: dict[tuple[int, int], int] = {}
        self._left: list[Server] = []

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self._step()
            for _ in range(self._rng.randrange(12)):
                await asyncio.sleep(0)
            self._no_generation_has_two_owners()
        for server in self._world.servers:
            if server.store.health.state is not SessionState.CONNECTED:
                self._world.zookeeper.resume(server.store)

    def await_settled(self) -> bool:
        """Whether every present server owns its part of a consistent assignment."""
        node = self._world.zookeeper.dump()[self._world.admin.paths.server_descriptors]
        assert node.data is not None
        assignment = PartitionAssignment.decode(node.data)
        present = [s for s in self._world.servers if s not in self._left]
        owned = {s.membership.server_id: dict(s.partitions) for s in present}
        return assignment.cversion == node.cversion and owned == {
            server: dict(partitions) for server, partitions in assignment.servers.items()
        }

    async def _step(self) -> None:
        zookeeper = self._world.zookeeper
        present = [s for s in self._world.servers if s not in self._left]
        server = self._rng.choice(present)
        connected = server.store.health.state is SessionState.CONNECTED
        match self._rng.randrange(7), connected:
            case 0, _ if len(present) < 5:
                await self._world.server()
            case 1, True if len(present) > 2:
                self._left.append(server)
                await server.membership.leave()
            case 2, True:
                zookeeper.suspend(server.store)
            case 3, _:
                zookeeper.expire(server.store)
            case 4, False:
                zookeeper.resume(server.store)
            case 5, True:
                server.store.lose_next_answer()
            case 6, True:
                await server.membership.prefer([self._rng.randrange(PARTITIONS)])

    def _no_generation_has_two_owners(self) -> None:
        for server in self._world.servers:
            for owned in server.partitions.items():
                owner = server.membership.server_id
                assert self._owner_of.setdefault(owned, owner) == owner


@pytest.mark.parametrize("seed", range(50))
async def test_random_faults_never_give_one_generation_to_two_servers(
    world: World, seed: int
) -> None:
    """No generation of a partition has two owners, and the cluster settles in the end."""
    faults = Faults(world, seed)
    await world.server()
    await world.server()
    await faults.run(40)
    await eventually(faults.await_settled)
