"""An outbox: each order in the log causes one message to another system, also after a crash.

The relay follows partition 0. It sends the message of an order, and then reports in the log that
the order was sent. After a crash it sends each order again that the log does not report as sent. So
a message may arrive twice, but both times with the same id, and the receiver drops the second one.
Several relays may run: the lock of an order lets only one of them report the order.

    python examples/outbox.py HOST:PORT [NEW-ORDER...]
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import waltz

PARTITION = 0
Send = Callable[[str, str], Awaitable[None]]
"""Sends a message with an id and a text. It may be called twice with the same id."""


@dataclass
class Outbox:
    """The state: the orders that are not reported as sent, by the ids of their transactions.

    ``applied`` is the id of the last transaction that the state contains.
    """

    unsent: dict[int, str] = field(default_factory=dict)
    applied: int = -1

    async def mark(self, partition: int) -> int:
        """Return the id of the last transaction that the state contains."""
        return self.applied

    async def apply(self, transaction: waltz.Transaction[dict[str, Any]]) -> None:
        """Add an order, or remove one that was sent."""
        match transaction.data:
            case {"order": str(text)}:
                self.unsent[transaction.id] = text
            case {"sent": int(order)}:
                self.unsent.pop(order, None)
        self.applied = transaction.id


async def relay(follower: waltz.StateFollower[dict[str, Any]], outbox: Outbox, send: Send) -> int:
    """Send the unsent orders, oldest first; return how many of them this relay has reported."""
    reported = 0
    await follower.caught_up()
    for order, text in sorted(outbox.unsent.items()):
        await send(f"{PARTITION}/{order}", text)

        # The default value binds this order: the next round changes the variable.
        def report(
            attempt: waltz.Attempt, order: int = order
        ) -> waltz.Draft[dict[str, Any]] | None:
            if order not in outbox.unsent:
                return None
            return waltz.Draft({"sent": order}, write_locks=[waltz.Lock("order", order)])

        if await follower.submit(PARTITION, report) is not None:
            reported += 1
    return reported


async def main(zookeeper: str, orders: list[str]) -> None:
    """Append orders, then send all that are unsent."""

    async def send(message_id: str, text: str) -> None:
        print(message_id, text)

    outbox = Outbox()
    serializer = waltz.JsonSerializer()
    async with (
        waltz.connect(
            zookeeper, root="/waltz", tls=waltz.PLAINTEXT, serializer=serializer
        ) as client,
        waltz.StateFollower(client, outbox, [PARTITION]) as follower,
    ):
        for text in orders:
            await client.append(PARTITION, {"order": text})
        print(await relay(follower, outbox, send), "sent")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
