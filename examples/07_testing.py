"""Test an application on a cluster in one process, with faults on demand.

``book`` is the application. Its client is any `waltz.LogClient`: of a cluster in the test's
process, or of one in production. The functions after ``book`` are tests of the application:

    python examples/07_testing.py
"""

import asyncio

import waltz
from waltz.testing import Faults, InProcessCluster

SEATS = 3


async def book(client: waltz.LogClient[bytes], guest: bytes) -> int | None:
    """Book a seat by a transaction in partition 0; return its number, None if no seat is free."""
    seat: int | None = None

    async def decide(attempt: waltz.Attempt) -> waltz.Draft[bytes] | None:
        nonlocal seat
        booked = [t.data async for t in client.stream(0, until=attempt.mark, data=True)]
        if len(booked) >= SEATS:
            seat = None
            return None
        seat = len(booked)
        return waltz.Draft(guest, write_locks=[waltz.Lock("seats", 0)])

    await client.submit(0, decide)
    return seat


async def no_seat_is_booked_twice() -> None:
    """Test with ten guests, delayed and lost messages, and locks that fail without a conflict."""
    faults = Faults(delay_seconds=(0, 0.01), lost=0.2, conflict=0.2)
    async with (
        InProcessCluster(seed=1, faults=faults) as cluster,
        cluster.connect() as one,
        cluster.connect() as two,
    ):
        clients = [one, two] * 5
        seats = await asyncio.gather(*(book(client, b"guest") for client in clients))
    booked = sorted(seat for seat in seats if seat is not None)
    print(f"booked: {booked}")
    assert booked == list(range(SEATS))


async def a_lock_failure_is_retried() -> None:
    """Test with one fault: the lock of the next append fails."""
    async with InProcessCluster() as cluster, cluster.connect() as client:
        cluster.fail_next_lock(partition=0)
        print(f"after a lock failure: seat {await book(client, b'guest')}")


if __name__ == "__main__":
    asyncio.run(no_seat_is_booked_twice())
    asyncio.run(a_lock_failure_is_retried())
