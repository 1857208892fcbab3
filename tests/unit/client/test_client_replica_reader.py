"""Reads from replicas: an answer counts only if its store session is still the newest one."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz.client import replica_reader
from waltz.client.replica_reader import SILENT_SECONDS, ReplicaReader, WantedRecords
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.outside import change_outside_addresses
from waltz.net import PLAINTEXT, ConnectionLost, Network, RemoteFailure, RpcConnection
from waltz.protocol import STORAGE, UnsupportedByPeer
from waltz.protocol.storage import StoredRecordListRequest, StoredRecordListResponse
from waltz.protocol.stored import NO_STORED_RECORDS, StoredBatch
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/test"
STORAGES = ("a:1", "b:1")
WANTED = WantedRecords(partition=0, first_id=5, last_id=9, max_records=10, max_bytes=1000)
FOUND = StoredBatch(1, b"record")


class Storage:
    """A connection to a storage that records its requests.

    ``begins`` has the session that begins before the answer, None if none does.
    """

    closed = False

    def __init__(self, scene: Scene) -> None:
        self.requests: list[StoredRecordListRequest] = []
        self.answer: StoredBatch | Exception = FOUND
        self.begins: int | None = None
        self._scene = scene

    async def call(
        self, make: Any, expected: type[StoredRecordListResponse]
    ) -> StoredRecordListResponse:
        request = make(0)
        self.requests.append(request)
        if self.begins is not None:
            await self._scene.begin(self.begins)
        if isinstance(self.answer, Exception):
            raise self.answer
        return StoredRecordListResponse(request.session_id, 0, 0, self.answer)

    def close(self) -> None:
        self.closed = True


class Scene:
    """A reader, its two storages, and the partition's metadata."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.admin = Cluster(self.zookeeper.connect(), ROOT)
        store = cast(KazooStore, self.zookeeper.connect())
        self.now = 0.0
        self.replicas = ReplicaReader(store, ROOT, PLAINTEXT, clock=lambda: self.now)
        self.storages = {name: Storage(self) for name in STORAGES}
        for name, storage in self.storages.items():
            self.replicas._open[name] = cast(RpcConnection, storage)

    async def begin(self, session_id: int, taking_part: tuple[str, ...] = STORAGES) -> None:
        """Write the metadata of a new session."""
        version = (await self.admin.partition_metadata(0)).version
        states = {
            name: ReplicaState(session_id, UNRESOLVED if name in taking_part else 3)
            for name in STORAGES
        }
        metadata = PartitionMetadata(1, session_id, states)
        await self.admin.write_partition_metadata(0, metadata, version)

    def requests(self) -> list[StoredRecordListRequest]:
        return [request for s in self.storages.values() for request in s.requests]


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await create_cluster(scene.admin.store, ROOT, "test", 1, key=uuid.UUID(int=1))
    await scene.begin(4)
    return scene


async def test_replica_answer_in_the_present_session_is_returned(scene: Scene) -> None:
    assert await scene.replicas.read_records(WANTED) == FOUND
    (request,) = scene.requests()
    assert (request.session_id, request.first_id, request.last_id) == (4, 5, 9)


async def test_answer_is_dropped_if_a_session_began_before_it(scene: Scene) -> None:
    """Recovery of the new session may have cut the replica before it answered."""
    for storage in scene.storages.values():
        storage.begins = 5
    assert await scene.replicas.read_records(WANTED) is None
    for storage in scene.storages.values():
        storage.begins = None
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert [request.session_id for request in scene.requests()] == [4, 5]


async def test_cached_session_is_compared_with_the_metadata_after_the_answer(
    scene: Scene,
) -> None:
    assert await scene.replicas.read_records(WANTED) == FOUND
    await scene.begin(5)
    assert await scene.replicas.read_records(WANTED) is None, "the storage still answered session 4"
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert [request.session_id for request in scene.requests()] == [4, 4, 5]


@pytest.mark.parametrize(
    "answer",
    [
        RemoteFailure("refused"),
        ConnectionLost("gone"),
        TimeoutError(),
        UnsupportedByPeer("an older storage"),
        NO_STORED_RECORDS,
    ],
)
async def test_replica_without_an_answer_is_replaced_by_the_other(
    scene: Scene, answer: StoredBatch | Exception
) -> None:
    first = next(iter(await _order(scene)))
    scene.storages[first].answer = answer
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert all(len(storage.requests) >= 1 for storage in scene.storages.values())


async def test_silent_replica_delays_one_read_until_it_is_tried_again(scene: Scene) -> None:
    """Otherwise each range of a long read would wait for its time limit."""
    silent = scene.storages[next(iter(await _order(scene)))]
    silent.answer = TimeoutError()
    silent.requests.clear()
    assert [await scene.replicas.read_records(WANTED) for _ in range(3)] == [FOUND] * 3
    assert len(silent.requests) == 1
    scene.now += SILENT_SECONDS
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert len(silent.requests) == 2


async def test_silent_replica_is_read_if_no_other_answers(scene: Scene) -> None:
    silent, other = (scene.storages[name] for name in await _order(scene))
    silent.answer = TimeoutError()
    assert await scene.replicas.read_records(WANTED) == FOUND
    silent.answer, other.answer = other.answer, TimeoutError()
    assert await scene.replicas.read_records(WANTED) == FOUND


async def test_replica_outside_the_session_is_not_read(scene: Scene) -> None:
    await scene.begin(5, taking_part=("b:1",))
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert scene.storages["a:1"].requests == []


async def test_session_is_read_again_after_all_replicas_refused(scene: Scene) -> None:
    assert await scene.replicas.read_records(WANTED) == FOUND
    await scene.begin(5)
    for storage in scene.storages.values():
        storage.answer = RemoteFailure("the session has changed")
    assert await scene.replicas.read_records(WANTED) is None
    for storage in scene.storages.values():
        storage.answer = FOUND
        storage.requests.clear()
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert [request.session_id for request in scene.requests()] == [5]


async def _order(scene: Scene) -> list[str]:
    """Return the storages in the order in which the reader reads them."""
    assert await scene.replicas.read_records(WANTED) == FOUND
    (first,) = (name for name, storage in scene.storages.items() if storage.requests)
    return [first, *(name for name in STORAGES if name != first)]


async def test_storage_whose_connection_is_lost_is_connected_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the storage would not be read any more after its restart."""
    restarted = {name: Storage(scene) for name in STORAGES}

    async def open_storage(address: tuple[str, int], *_: object, **__: object) -> Storage:
        return restarted["{}:{}".format(*address)]

    monkeypatch.setattr(RpcConnection, "open_storage", open_storage)
    for storage in scene.storages.values():
        storage.closed, storage.answer = True, ConnectionLost("connection closed")
    assert await scene.replicas.read_records(WANTED) == FOUND
    assert scene.requests() == [], "a closed connection is not used"


@pytest.mark.parametrize("access", ["inside", "outside"])
async def test_storage_is_not_silent_because_zookeeper_is_slow(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, access: Access
) -> None:
    """Here storages answer at once, and ZooKeeper later: it exceeds a limit of 0 s, if covered."""
    monkeypatch.setattr(replica_reader, "_ANSWER_SECONDS", 0.0)
    outside = dict(zip(STORAGES, ("lb.example:1", "lb.example:2"), strict=True))
    await change_outside_addresses(scene.admin, lambda known: known.with_addresses(outside))

    class Dialed:
        async def dial(self, *_: object) -> SimpleNamespace:
            return SimpleNamespace()

    async def open_storage(
        address: tuple[str, int], *_: object, network: Any, **__: object
    ) -> Storage:
        await network.dial(*address, STORAGE, None, PLAINTEXT)
        return scene.storages["{}:{}".format(*address)]

    monkeypatch.setattr(RpcConnection, "open_storage", open_storage)
    store = cast(KazooStore, scene.zookeeper.connect())
    replicas = ReplicaReader(store, ROOT, PLAINTEXT, access, cast(Network, Dialed()))
    assert await replicas.read_records(WANTED) == FOUND
    assert len(scene.requests()) == 1


async def test_reader_closes_its_connections(scene: Scene) -> None:
    async with asyncio.timeout(60):
        await scene.replicas.close()
    assert all(storage.closed for storage in scene.storages.values())
