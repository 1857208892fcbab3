"""A teller of the ledger example, without a cluster and without Spark."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from waltz import Attempt, Draft, Transaction
from waltz.protocol import ReqId

LEDGER = runpy.run_path(str(Path(__file__).parents[2] / "examples/spark/03_ledger.py"))
OPENING = LEDGER["postings"](dict.fromkeys(range(LEDGER["ACCOUNTS"]), LEDGER["OPENING"]))


class LogOfOneConflict:
    """A log, in place of `waltz.Client`, in which each attempt has conflicted with the opening."""

    def __init__(self) -> None:
        self.marks: list[int | None] = []

    async def stream(
        self, partition: int, *, after: int, until: int, data: bool
    ) -> AsyncIterator[Transaction]:
        assert (after, until, data) == (-1, 0, True)
        yield Transaction(partition, 0, ReqId(1, 1, partition, 1), 0, OPENING)

    async def submit(
        self, partition: int, build: Callable[[Attempt], Awaitable[Draft | None]]
    ) -> None:
        draft = await build(Attempt(partition, 2, -1, 0))
        self.marks.append(None if draft is None else draft.mark)


async def test_ledger_after_conflict_with_transaction_0_reads_that_transaction() -> None:
    log = LogOfOneConflict()
    teller = LEDGER["Teller"](log, 1)
    await teller.work()
    assert log.marks == [0] * LEDGER["TRANSFERS"]
    assert set(teller.balances.values()) == {LEDGER["OPENING"]}
