"""Test the limit of appends in flight in one partition, and the order of waiting appends."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from waltz.client.in_flight import InFlightLimit


def entering(room: InFlightLimit, count: int, size: int = 0) -> asyncio.Task[None]:
    return asyncio.ensure_future(room.enter(count, size))


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_large_entry_is_not_overtaken_by_small_entries() -> None:
    """Otherwise a continuous series of small entries would keep it waiting forever."""
    room = InFlightLimit(10, 1000)
    await room.enter(1, 0)
    await room.enter(1, 0)
    much = entering(room, 9)
    await settled()
    newcomers = [entering(room, 1) for _ in range(3)]
    await settled()
    assert not any(task.done() for task in (much, *newcomers))
    room.leave(1, 0)
    await settled()
    assert much.done()
    assert not any(task.done() for task in newcomers)
    room.leave(1, 0)
    await settled()
    assert [task.done() for task in newcomers] == [True, False, False]


@pytest.mark.parametrize(("count", "size"), [(99, 0), (1, 10**9)])
async def test_any_entry_fits_when_nothing_is_in_flight(count: int, size: int) -> None:
    room = InFlightLimit(10, 1000)
    await room.enter(count, size)
    waits = entering(room, 1)
    await settled()
    assert not waits.done()
    room.leave(count, size)
    await waits
    assert room.count == 1


async def test_cancelled_waiter_lets_the_next_one_enter() -> None:
    room = InFlightLimit(2, 1000)
    await room.enter(1, 0)
    much, small = entering(room, 2), entering(room, 1)
    await settled()
    assert not small.done()
    much.cancel()
    await small
    assert room.count == 2


async def test_waiter_cancelled_on_entry_returns_its_room() -> None:
    room = InFlightLimit(1, 1000)
    await room.enter(1, 0)
    first, second = entering(room, 1), entering(room, 1)
    await settled()
    room.leave(1, 0)
    first.cancel()
    await second
    assert first.cancelled()
    assert room.count == 1


async def test_removed_limit_lets_all_waiters_enter() -> None:
    room = InFlightLimit(1, 1000)
    await room.enter(1, 0)
    waiting = [entering(room, 1) for _ in range(3)]
    await settled()
    room.remove_limits()
    await asyncio.gather(*waiting)
    await room.enter(5, 5)


@pytest.mark.parametrize("seed", range(10))
async def test_all_waiters_enter_within_the_limits(seed: int) -> None:
    random = Random(seed)
    room = InFlightLimit(10, 100)
    order: list[int] = []
    most = 0

    async def one(number: int, count: int, size: int, turns: int) -> None:
        nonlocal most
        await room.enter(count, size)
        order.append(number)
        most = max(most, room.count)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            room.leave(count, size)

    tasks = [
        asyncio.ensure_future(
            one(n, random.randint(1, 10), random.randint(0, 100), random.randint(0, 4))
        )
        for n in range(200)
    ]
    doomed = random.sample(range(200), 20)
    for n in doomed:
        asyncio.get_running_loop().call_soon(tasks[n].cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == sorted(order)
    assert len(order) >= 180
    assert most <= 10
    assert room.count == 0
