"""Test that a wait for the admin lock sends no requests to ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from waltz.metadata.admin_lock import AdminLock
from waltz.testing.zookeeper import MemoryZooKeeper

PATH = "/lock"


async def test_wait_for_the_admin_lock_of_another_process_does_not_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zookeeper = MemoryZooKeeper()
    holder, waiter = zookeeper.connect(), zookeeper.connect()
    tries: list[str] = []
    create = waiter.create

    async def count(path: str, data: bytes | None, *, ephemeral: bool) -> str:
        tries.append(path)
        return await create(path, data, ephemeral=ephemeral)

    monkeypatch.setattr(waiter, "create", count)
    lock = AdminLock(waiter, PATH)
    async with AdminLock(holder, PATH):
        waiting = asyncio.create_task(lock.__aenter__())
        for _ in range(50):
            await asyncio.sleep(0)
        assert tries == [PATH]
    await waiting
    assert tries == [PATH, PATH]
    await lock.__aexit__(None, None, None)
