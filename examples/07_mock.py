"""Testing an application without a cluster: the mock, and what can go wrong with it on demand.

``book`` is the application. It takes any `waltz.LogClient`, so that the test gives it a mock's and
the program a real one. It needs no cluster, but shows what a test of yours looks like:

    python examples/07_mock.py
"""

import asyncio

import waltz
from waltz import mock

SEATS = 3


async def book(client: waltz.LogClient[bytes], guest: bytes) -> int | None:
    """Book a seat; returns its number, None if there are none left."""
    seat: int | None = None

    async def decide(attempt: waltz.Attempt) -> waltz.Draft[bytes] | None:
        nonlocal seat
        booked = [t.data async for t in client.stream(0, until=attempt.mark, data=True)]
        seat = len(booked) if len(booked) < SEATS else None
        return (
            waltz.Draft(guest, write_locks=[waltz.Lock("seats", 0)]) if seat is not None else None
        )

    await client.submit(0, decide)
    return seat


async def no_seat_is_booked_twice() -> None:
    """A test: many guests, slow and lossy messages, locks that fail for no reason."""
    faults = mock.Faults(delay_seconds=(0, 0.01), lost=0.2, conflict=0.2)
    cluster = mock.MockCluster(seed=1, faults=faults)
    async with cluster.connect() as one, cluster.connect() as two:
        seats = await asyncio.gather(*(book(c, b"guest") for c in (one, two) for _ in range(5)))
    booked = sorted(seat for seat in seats if seat is not None)
    print(f"booked: {booked}")
    assert booked == list(range(SEATS))


async def a_lock_failure_is_lived_through() -> None:
    """Another one: exactly this fault, exactly now."""
    cluster = mock.MockCluster()
    cluster.fail_next_lock(0)
    async with cluster.connect() as client:
        print(f"after a lock failure: seat {await book(client, b'guest')}")


if __name__ == "__main__":
    asyncio.run(no_seat_is_booked_twice())
    asyncio.run(a_lock_failure_is_lived_through())
