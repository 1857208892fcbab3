"""The event loop on virtual time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from waltz.testing import NothingToWaitFor, run


def test_sleeping_tasks_wake_in_the_order_of_their_times() -> None:
    events: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        events.append((name, asyncio.get_running_loop().time()))

    async def work() -> None:
        await asyncio.gather(sleep("day", 86_400), sleep("hour", 3600), sleep("now", 0))

    begun = time.monotonic()
    run(work())
    assert events == [("now", 0.0), ("hour", 3600.0), ("day", 86_400.0)]
    assert time.monotonic() - begun < 60


def test_timeout_expires_at_its_virtual_time() -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(60)
        return asyncio.get_running_loop().time()

    assert run(work()) == pytest.approx(30)


def test_virtual_time_wait_without_a_timer_raises() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingToWaitFor, match="no timer is set"):
        run(work())


def test_work_for_other_threads_is_done_at_once() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(fail)

    run(work())
