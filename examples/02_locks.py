"""Decide under a lock: take the next invoice number while other programs do the same.

``decide`` counts the invoices in partition 0 up to ``attempt.mark``, the id of the last transaction
that its decision takes into account. If a later transaction has taken the lock, the server refuses
the append, and the client calls ``decide`` again. Run this program several times, also at the same
time:

    python examples/02_locks.py HOST:PORT
"""

import asyncio
import sys

import waltz

INVOICES = waltz.Lock("invoices", 1)
"""A lock is a name and a number. All programs that take invoice numbers take this lock."""


async def main(zookeeper: str) -> None:
    """Take ten invoice numbers, five at a time."""
    async with waltz.connect(zookeeper, root="/waltz", tls=waltz.PLAINTEXT) as client:

        async def decide(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
            log = client.stream(0, until=attempt.mark, data=True)
            taken = [t.data async for t in log if t.data.startswith(b"invoice ")]
            return waltz.Draft(b"invoice %d" % len(taken), write_locks=[INVOICES])

        for _ in range(2):
            submitted = await asyncio.gather(*(client.submit(0, decide) for _ in range(5)))
            for tx in sorted(tx for tx in submitted if tx is not None):
                print((await client.read(0, tx)).decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
