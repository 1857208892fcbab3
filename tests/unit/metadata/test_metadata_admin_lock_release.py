"""Test the release of the admin lock by a task that is cancelled while ZooKeeper is lost."""

from __future__ import annotations

import asyncio

import pytest

from waltz.metadata import admin_lock
from waltz.metadata.admin_lock import AdminLock
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

PATH = "/lock"


class Scene:
    """A task that holds the lock, and whose connection to ZooKeeper is suspended then."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.store: MemoryStore = self.zookeeper.connect()
        self.lock = AdminLock(self.store, PATH)

    async def hold(self, end: asyncio.Event) -> None:
        async with self.lock:
            self.zookeeper.suspend(self.store)
            await end.wait()

    async def check_free_when_zookeeper_answers(self) -> None:
        """Another process and this one can take the lock once the store is connected again."""
        assert PATH in self.zookeeper.dump()
        self.zookeeper.resume(self.store)
        await turns()
        assert PATH not in self.zookeeper.dump()
        async with AdminLock(self.zookeeper.connect(), PATH):
            pass
        async with self.lock:
            pass


async def turns() -> None:
    """Let all tasks run until each waits for something."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_admin_lock_of_a_cancelled_task_is_free_when_zookeeper_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_lock, "_ABANDON_SECONDS", 0)
    scene = Scene()
    holding = asyncio.create_task(scene.hold(asyncio.Event()))
    await turns()
    holding.cancel()
    await turns()
    assert holding.cancelled()  # The task does not wait for ZooKeeper.
    await scene.check_free_when_zookeeper_answers()


async def test_admin_lock_whose_release_is_cancelled_is_free_when_zookeeper_answers() -> None:
    scene = Scene()
    end = asyncio.Event()
    holding = asyncio.create_task(scene.hold(end))
    await turns()
    end.set()
    await turns()
    assert not holding.done()  # It releases the lock.
    holding.cancel()
    await turns()
    assert holding.cancelled()
    await scene.check_free_when_zookeeper_answers()
