"""Append transfers under locks to the log, and verify with Spark that no money was lost.

    python examples/spark/03_ledger.py [waltz-local/cluster.json]

Two tellers transfer money between the same accounts at the same time. A teller decides each
transfer by the balances in the log, under locks on both accounts, so that no account is overdrawn.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import functions as sf

import waltz
import waltz.spark

PARTITION = 3
ACCOUNTS = 8
OPENING = 100
TRANSFERS = 60


class Teller:
    """Keeps the balances by following the log, and appends transfers.

    ``balances`` are the balances after the transaction ``position``.
    """

    def __init__(self, client: waltz.Client[bytes], seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self.balances: Counter[int] = Counter()
        self.position = -1

    async def catch_up(self, mark: int) -> None:
        """Apply the log up to ``mark``."""
        if mark > self.position:
            log = self._client.stream(PARTITION, after=self.position, until=mark, data=True)
            async for transaction in log:
                for posting in json.loads(transaction.data)["postings"]:
                    self.balances[posting["account"]] += posting["amount"]
                self.position = transaction.id

    async def work(self) -> None:
        """Submit random transfers. A transfer that the balance does not cover is not appended."""
        for _ in range(TRANSFERS):
            giver, taker = self._random.sample(range(ACCOUNTS), 2)
            amount = self._random.randint(1, OPENING)

            # The default values bind this transfer: the next round changes the variables.
            async def decide(
                attempt: waltz.Attempt, giver: int = giver, taker: int = taker, amount: int = amount
            ) -> waltz.Draft[bytes] | None:
                # If another teller's transfer has made the last attempt fail, it is
                # ``attempt.conflict``. It may be after ``attempt.mark``, because the client may not
                # have seen it yet. A decision without it would be refused again.
                conflict = -1 if attempt.conflict is None else attempt.conflict
                await self.catch_up(max(attempt.mark, conflict))
                if self.balances[giver] < amount:
                    return None
                locks = [waltz.Lock("account", giver), waltz.Lock("account", taker)]
                data = postings({giver: -amount, taker: amount})
                return waltz.Draft(data, write_locks=locks, mark=self.position)

            await self._client.submit(PARTITION, decide)


def postings(amounts: dict[int, int]) -> bytes:
    """Return the data of a transaction that changes each account by an amount."""
    lines = [{"account": account, "amount": amount} for account, amount in amounts.items()]
    return json.dumps({"postings": lines}).encode()


async def run_tellers(description: dict[str, Any]) -> dict[int, int]:
    """Open accounts, run two tellers, and return the final balances of the first teller.

    ``description`` is the content of ``cluster.json``, which describes the cluster.
    """
    zookeeper, root = description["zookeeper"], description["root"]
    tls = waltz.TlsConfig(enabled=description["tls"])
    async with (
        waltz.connect(zookeeper, root=root, tls=tls) as one,
        waltz.connect(zookeeper, root=root, tls=tls) as two,
    ):
        opening = postings(dict.fromkeys(range(ACCOUNTS), OPENING))
        await one.append(PARTITION, opening)
        tellers = [Teller(one, 1), Teller(two, 2)]
        await asyncio.gather(*(teller.work() for teller in tellers))
        await tellers[0].catch_up(await one.high_water_mark(PARTITION))
        return dict(tellers[0].balances)


def main(cluster: str = "waltz-local/cluster.json") -> None:
    """Run the transfers, then compute the balances from the log with Spark, and compare them."""
    tellers_balances = asyncio.run(run_tellers(json.loads(Path(cluster).read_text())))
    spark = waltz.spark.session("ledger")
    columns = "transaction_id BIGINT, postings ARRAY<STRUCT<account: BIGINT, amount: BIGINT>>"
    reader = spark.read.format("waltz").schema(columns).option("cluster", cluster)
    log = reader.option("partitions", PARTITION).option("decode", "json").load()
    lines = log.select("transaction_id", sf.inline("postings")).cache()
    totals = lines.groupBy("account").agg(sf.sum("amount").alias("balance")).orderBy("account")
    totals.show()
    balances = {row["account"]: row["balance"] for row in totals.collect()}
    assert balances == tellers_balances, (balances, tellers_balances)
    assert min(balances.values()) >= 0
    # Each run pays into all accounts by one transaction. A transfer changes only two accounts.
    changes = lines.groupBy("transaction_id").agg(
        sf.count("*").alias("accounts"), sf.sum("amount").alias("amount")
    )
    [(paid_in,)] = changes.where(sf.col("accounts") == ACCOUNTS).agg(sf.sum("amount")).collect()
    assert sum(balances.values()) == paid_in, (balances, paid_in)
    print(f"{sum(balances.values())} in all accounts together; {paid_in} were paid in")


if __name__ == "__main__":
    main(*sys.argv[1:])
