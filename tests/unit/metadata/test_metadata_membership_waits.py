"""Test when the membership is read again, and what a stop waits for."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.membership_steps import Membership
from waltz.metadata.membership import _MembershipWatch
from waltz.metadata.store import OnChange, StoreUnavailable
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper


class Readings:
    """Stands for a cluster: the times of the readings of its membership.

    The next ``failures`` readings fail. ``change`` is what a change of the membership calls.
    """

    def __init__(self, failures: int = 0) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.store: MemoryStore = self.zookeeper.connect()
        self.failures = failures
        self.times: list[float] = []
        self.change: OnChange = lambda: None

    async def membership(self, on_change: OnChange) -> Membership:
        self.times.append(asyncio.get_running_loop().time())
        self.change = on_change
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("no answer")
        return cast(Membership, None)

    def watched(self) -> _MembershipWatch:
        async def act(membership: Membership) -> None:
            return

        return _MembershipWatch(cast(Cluster, self), act)


async def turns() -> None:
    """Let all tasks run until each waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_membership_is_read_once_for_each_change() -> None:
    readings = Readings()
    watch = readings.watched()
    for expected in (1, 2, 3):
        await turns()
        assert len(readings.times) == expected
        readings.change()
    await watch.stop()


@on_virtual_time
async def test_membership_without_an_answer_is_read_again_after_growing_delays() -> None:
    readings = Readings(failures=5)
    begun = asyncio.get_running_loop().time()
    watch = readings.watched()
    await asyncio.sleep(100)
    assert readings.times == pytest.approx([begun + t for t in (0.0, 0.1, 1.1, 3.1, 7.1, 15.1)])
    readings.failures, changed = 1, asyncio.get_running_loop().time()
    readings.change()
    await asyncio.sleep(100)
    assert readings.times[6:] == pytest.approx([changed, changed + 0.1]), "the delays begin again"
    await watch.stop()


async def test_reconnection_causes_one_reading_before_the_next_delay() -> None:
    readings = Readings(failures=1000)
    watch = readings.watched()
    await turns()
    for expected in (2, 3):
        readings.zookeeper.suspend(readings.store)
        readings.zookeeper.resume(readings.store)
        await turns()
        assert len(readings.times) == expected
    await watch.stop()


async def test_stop_waits_for_the_end_of_the_step_under_way() -> None:
    """Otherwise a server that leaves could create its znode after it has deleted it."""
    ended = False

    async def act(membership: Membership) -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            await turns()
            ended = True

    watch = _MembershipWatch(cast(Cluster, Readings()), act)
    await turns()
    await watch.stop()
    assert ended
