"""Test a compare-and-set without an answer: it recognises its own write, else it conflicts."""

from __future__ import annotations

import asyncio

import pytest

from waltz.metadata.retry import compare_and_set, until_answered, wait_at_most
from waltz.metadata.store import (
    Node,
    NodeMissing,
    OnChange,
    StoreUnavailable,
    VersionConflict,
)
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

PATH = "/node"
OWN, OTHER = b"own", b"other"


class Scene:
    """A node at version 0, the store that writes it, and the store of another process."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.store: MemoryStore = self.zookeeper.connect()
        self.other: MemoryStore = self.zookeeper.connect()

    async def interrupted_write(self) -> asyncio.Task[int]:
        """Begin a write that gets no answer and is not executed; it waits for a connection."""
        await self.other.create(PATH, b"")
        self.zookeeper.suspend(self.store)
        writing = asyncio.create_task(compare_and_set(self.store, PATH, OWN, 0))
        await turns()
        assert not writing.done()
        return writing

    def data(self) -> bytes | None:
        return self.zookeeper.dump()[PATH].data


async def turns() -> None:
    """Let all tasks run until each waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "writes",
    [[OTHER], [OTHER, OWN], [OTHER, OTHER]],
    ids=["one other write", "another write of equal data", "two other writes"],
)
async def test_compare_and_set_retried_after_another_write_fails(
    writes: list[bytes],
) -> None:
    scene = Scene()
    writing = await scene.interrupted_write()
    for version, data in enumerate(writes):
        await scene.other.set(PATH, data, version)
    scene.zookeeper.resume(scene.store)
    with pytest.raises(VersionConflict):
        await writing
    assert scene.data() == writes[-1]


async def test_compare_and_set_executed_without_an_answer_is_not_repeated() -> None:
    scene = Scene()
    await scene.other.create(PATH, b"")
    scene.store.lose_next_answer()
    assert await compare_and_set(scene.store, PATH, OWN, 0) == 1
    assert scene.zookeeper.dump()[PATH].version == 1


async def test_compare_and_set_executed_without_an_answer_is_found_after_an_outdated_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session reconnects to a follower that has not seen the write yet."""
    scene = Scene()
    await scene.other.create(PATH, b"")
    get = scene.store.get
    outdated = [await get(PATH)]

    async def get_from_a_lagging_follower(
        path: str, on_change: OnChange | None = None
    ) -> Node | None:
        return outdated.pop() if outdated else await get(path, on_change)

    monkeypatch.setattr(scene.store, "get", get_from_a_lagging_follower)
    scene.store.lose_next_answer()
    assert await compare_and_set(scene.store, PATH, OWN, 0) == 1
    assert not outdated
    assert scene.zookeeper.dump()[PATH].version == 1


async def test_compare_and_set_of_a_node_deleted_meanwhile_fails() -> None:
    scene = Scene()
    writing = await scene.interrupted_write()
    await scene.other.delete(PATH)
    scene.zookeeper.resume(scene.store)
    with pytest.raises(NodeMissing):
        await writing


async def test_compare_and_set_without_a_read_version_is_refused() -> None:
    scene = Scene()
    await scene.other.create(PATH, b"")
    with pytest.raises(AssertionError):
        await compare_and_set(scene.store, PATH, OWN, -1)


async def test_operation_is_retried_at_once_after_a_reconnection() -> None:
    """The delay before the second retry is a second; a reconnection ends it."""
    scene = Scene()
    attempts = 0

    async def fail_twice() -> int:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise StoreUnavailable("no answer")
        return attempts

    answering = asyncio.create_task(until_answered(scene.store, fail_twice))
    for expected in (1, 2):
        await turns()
        assert attempts == expected
        scene.zookeeper.suspend(scene.store)
        scene.zookeeper.resume(scene.store)
    await turns()
    assert answering.done()
    assert answering.result() == 3


async def test_disconnect_does_not_trigger_retry_before_reconnect() -> None:
    scene = Scene()
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise StoreUnavailable("no answer")

    answering = asyncio.create_task(until_answered(scene.store, fail))
    await turns()
    scene.zookeeper.suspend(scene.store)
    await turns()
    assert attempts == 1
    answering.cancel()


async def test_answered_operation_stops_following_the_connection() -> None:
    """Each operation would add a callback to those of the session."""
    scene = Scene()
    before = len(scene.store.health._callbacks)

    async def succeed() -> int:
        assert len(scene.store.health._callbacks) == before + 1
        return 1

    assert await until_answered(scene.store, succeed) == 1
    assert len(scene.store.health._callbacks) == before


async def test_wait_at_most_ends_with_its_event_and_keeps_a_cancellation() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_at_most(event, 1000.0))
    await turns()
    event.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
