"""The metadata store in memory and over ZooKeeper: one suite for both."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from tests.support.eventually import eventually
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.store import (
    ANY_VERSION,
    MetadataStore,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    SessionState,
    StoreClosed,
    StoreError,
    VersionConflict,
    create_ancestors,
)
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Connects to a store, and makes it end a session."""

    connect: Callable[[], Awaitable[MetadataStore]]
    expire: Callable[[MetadataStore], Awaitable[None]]


def in_memory() -> Ensemble:
    zookeeper = MemoryZooKeeper()

    async def connect() -> MetadataStore:
        return zookeeper.connect()

    async def expire(store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        zookeeper.expire(store)
        zookeeper.resume(store)

    return Ensemble(connect, expire)


def over(connect_string: str, end_session: Callable[[KazooStore], Awaitable[None]]) -> Ensemble:
    async def connect() -> MetadataStore:
        return await KazooStore.connect(connect_string, 4000)

    async def expire(store: MetadataStore) -> None:
        assert isinstance(store, KazooStore)
        await end_session(store)

    return Ensemble(connect, expire)


@pytest.fixture(params=["memory", "zookeeper"])
def ensemble(request: pytest.FixtureRequest) -> Ensemble:
    if request.param == "memory":
        return in_memory()
    return over(request.getfixturevalue("zookeeper"), request.getfixturevalue("end_session"))


@pytest.fixture
async def store(ensemble: Ensemble) -> AsyncIterator[MetadataStore]:
    connected = await ensemble.connect()
    yield connected
    await connected.close()


@pytest.fixture
async def other(ensemble: Ensemble) -> AsyncIterator[MetadataStore]:
    """A second session with the same ensemble."""
    connected = await ensemble.connect()
    yield connected
    await connected.close()


@pytest.fixture
async def base(store: MetadataStore) -> str:
    """A new node for this test."""
    return await store.create(f"/{uuid.uuid4().hex}", None)


class Calls:
    """Counts how often it was called."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_store_create_get_set_and_delete_follow_versions(
    store: MetadataStore, base: str
) -> None:
    path = f"{base}/a"
    assert await store.get(path) is None
    assert await store.create(path, b"one") == path
    node = await store.get(path)
    assert node is not None
    assert (node.data, node.version, node.cversion, node.owner) == (b"one", 0, 0, None)
    assert await store.set(path, b"two", 0) == 1
    assert await store.set(path, b"three", ANY_VERSION) == 2
    node = await store.get(path)
    assert node is not None
    assert (node.data, node.version) == (b"three", 2)
    await store.delete(path, 2)
    assert await store.get(path) is None


async def test_store_unset_data_differs_from_empty_data(store: MetadataStore, base: str) -> None:
    await store.create(f"{base}/none", None)
    await store.create(f"{base}/empty", b"")
    none, empty = await store.get(f"{base}/none"), await store.get(f"{base}/empty")
    assert none is not None
    assert none.data is None
    assert empty is not None
    assert empty.data == b""


async def test_store_refused_operations_raise_their_errors(store: MetadataStore, base: str) -> None:
    await store.create(f"{base}/a", b"")
    with pytest.raises(NodeExists):
        await store.create(f"{base}/a", b"")
    with pytest.raises(NodeMissing):
        await store.create(f"{base}/b/c", b"")
    with pytest.raises(VersionConflict) as conflict:
        await store.set(f"{base}/a", b"x", 1)
    assert (conflict.value.path, conflict.value.expected) == (f"{base}/a", 1)
    with pytest.raises(NodeMissing):
        await store.set(f"{base}/b", b"x", 0)
    with pytest.raises(VersionConflict):
        await store.delete(f"{base}/a", 1)
    with pytest.raises(NodeNotEmpty):
        await store.delete(base)
    with pytest.raises(NodeMissing):
        await store.delete(f"{base}/b")
    with pytest.raises(NodeMissing):
        await store.children(f"{base}/b")


async def test_store_children_are_counted_and_numbered(store: MetadataStore, base: str) -> None:
    """The number of a sequential node counts creations; cversion counts deletions too."""
    assert await store.create(f"{base}/s_", b"", sequence=True) == f"{base}/s_0000000000"
    await store.create(f"{base}/plain", b"")
    await store.delete(f"{base}/s_0000000000")
    assert await store.create(f"{base}/s_", b"", sequence=True) == f"{base}/s_0000000002"
    children = await store.children(base)
    assert children.names == ("plain", "s_0000000002")
    assert (children.version, children.cversion) == (0, 4)
    await store.set(f"{base}/plain", b"x", 0)
    assert (await store.children(base)).cversion == 4


async def test_store_missing_ancestors_are_created(store: MetadataStore, base: str) -> None:
    await create_ancestors(store, f"{base}/a/b/c")
    await create_ancestors(store, f"{base}/a/b/c")
    assert (await store.children(f"{base}/a/b")).names == ()
    node = await store.get(f"{base}/a")
    assert node is not None
    assert node.data is None


async def test_ephemeral_nodes_are_deleted_with_their_session(
    ensemble: Ensemble, store: MetadataStore, other: MetadataStore, base: str
) -> None:
    third = await ensemble.connect()
    path = await third.create(f"{base}/e", b"x", ephemeral=True)
    node = await store.get(path)
    assert node is not None
    assert node.owner == third.health.session_id != other.health.session_id
    with pytest.raises(StoreError):
        await store.create(f"{path}/child", b"")
    gone = Calls()
    await other.get(path, gone)
    await third.close()
    await eventually(lambda: gone.count == 1)
    assert await other.get(path) is None


@pytest.mark.parametrize("change", ["set", "delete"])
async def test_data_watch_fires_once_per_registration(
    store: MetadataStore, other: MetadataStore, base: str, change: str
) -> None:
    path = await store.create(f"{base}/a", b"")
    watch, child_watch = Calls(), Calls()
    await other.get(path, watch)
    await other.get(path, watch)
    await other.children(base, child_watch)
    await (store.set(path, b"x", 0) if change == "set" else store.delete(path))
    await eventually(lambda: watch.count)
    await other.get(base)
    assert watch.count == 1
    await eventually(lambda: child_watch.count == (change == "delete"))


async def test_watch_of_a_missing_node_fires_at_its_creation(
    store: MetadataStore, other: MetadataStore, base: str
) -> None:
    watch = Calls()
    assert await other.get(f"{base}/a", watch) is None
    await store.create(f"{base}/a", b"")
    await eventually(lambda: watch.count == 1)
    await store.set(f"{base}/a", b"x", 0)
    await other.get(f"{base}/a")
    assert watch.count == 1


async def test_child_watch_fires_at_a_change_of_the_list(
    store: MetadataStore, other: MetadataStore, base: str
) -> None:
    watch = Calls()
    await other.children(base, watch)
    await store.set(base, b"data", 0)
    await store.create(f"{base}/a", b"")
    await eventually(lambda: watch.count == 1)
    await store.delete(f"{base}/a")
    await other.get(base)
    assert watch.count == 1


async def test_expired_session_is_reported_and_replaced(
    ensemble: Ensemble, store: MetadataStore, other: MetadataStore, base: str
) -> None:
    path = await other.create(f"{base}/e", b"", ephemeral=True)
    old_session = other.health.session_id
    states: list[SessionState] = []
    unsubscribe = other.health.on_change(states.append)
    watch = Calls()
    await other.get(base, watch)
    await ensemble.expire(other)
    await eventually(lambda: states[-2:] == [SessionState.LOST, SessionState.CONNECTED])
    await eventually(lambda: watch.count == 1)
    assert other.health.session_id not in (None, old_session)
    assert other.health.unhealthy_since is None
    assert await other.get(path) is None
    unsubscribe()
    await other.close()
    assert states[-1] is SessionState.CONNECTED


async def test_closed_store_refuses_operations(ensemble: Ensemble, base: str) -> None:
    closing = await ensemble.connect()
    states: list[SessionState] = []
    closing.health.on_change(states.append)
    await closing.close()
    await closing.close()
    assert states == [SessionState.CLOSED]
    assert closing.health.session_id is None
    assert closing.health.unhealthy_since is not None
    with pytest.raises(StoreClosed):
        await closing.get(base)


async def test_concurrent_writes_of_one_version_have_one_winner(
    store: MetadataStore, other: MetadataStore, base: str
) -> None:
    path = await store.create(f"{base}/n", b"")

    async def write(writer: MetadataStore) -> bool:
        with contextlib.suppress(VersionConflict):
            return bool(await writer.set(path, b"x", 0))
        return False

    assert sorted(await asyncio.gather(write(store), write(other))) == [False, True]
