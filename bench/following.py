"""Follow a partition with many clients, which are all quick or all slow. Touches the network.

    python -m bench.following '{"zookeeper": …, "root": …, "clients": …, …}'

`bench.followers` runs this program. Its argument is a `Following` as JSON. The program prints
``ready`` when its clients follow. With quick clients, it ends when they have read the last record,
and prints their latencies in seconds as a list in JSON. With slow clients, it ends when its
standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
import time
from dataclasses import dataclass
from itertools import chain

import waltz
from waltz.runtime.process import run_loop

PARTITION = 0
SLOW_PAUSE_SECONDS = 1.0
"""How long a slow client pauses after each batch, which has up to 1000 transactions."""
_SENT_AT = struct.Struct(">d")
"""The beginning of a record: when it was made, in seconds of the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Following:
    """The clients of one process, each of which streams the partition with its data.

    Quick clients read ``first`` to ``last``. Slow ones begin at the start of the log, and pause
    after each batch.
    """

    zookeeper: str
    root: str
    clients: int
    first: int
    last: int
    slow: bool


def stamped(size: int) -> bytes:
    """Return a record of ``size`` bytes, at least 8, that says when it was made."""
    return _SENT_AT.pack(time.monotonic()).ljust(size, b".")


def age(data: bytes) -> float:
    """Return how many seconds ago a record was made, by this machine's clock."""
    (sent_at,) = _SENT_AT.unpack_from(data)
    return float(time.monotonic() - sent_at)


async def _follow(client: waltz.Client, load: Following) -> list[float]:
    """Stream from ``first`` to ``last``; return the ages of the records at their delivery."""
    stream = client.stream(PARTITION, after=load.first - 1, until=load.last, data=True)
    return [age(transaction.data) async for transaction in stream]


async def _follow_slowly(client: waltz.Client, delay: float) -> None:
    """After ``delay`` seconds, stream the log from its start, with pauses, until cancelled."""
    await asyncio.sleep(delay)
    async for _ in client.stream(PARTITION, after=-1, data=True).batches():
        await asyncio.sleep(SLOW_PAUSE_SECONDS)


async def _main(load: Following) -> None:
    """Follow as ``load`` says, and print as the module's docstring says."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(waltz.connect(load.zookeeper, root=load.root))
            for _ in range(load.clients)
        ]
        if load.slow:
            # The clients begin one after the other: otherwise all would read at the same time. The
            # last one begins before this process is ready.
            delays = [SLOW_PAUSE_SECONDS * i / load.clients for i in range(load.clients)]
            pairs = zip(clients, delays, strict=True)
            tasks = [asyncio.create_task(_follow_slowly(*pair)) for pair in pairs]
            await asyncio.sleep(SLOW_PAUSE_SECONDS)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for task in tasks:
                if task.done():  # Only an error ends the task.
                    task.result()  # This raises the error.
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return
        follows = [asyncio.create_task(_follow(client, load)) for client in clients]
        print("ready", flush=True)
        latencies = await asyncio.gather(*follows)
        print(json.dumps(list(chain.from_iterable(latencies))), flush=True)


if __name__ == "__main__":
    run_loop(_main(Following(**json.loads(sys.argv[1]))))
