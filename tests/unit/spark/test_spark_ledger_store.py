"""Ledgers of writes in ZooKeeper: who may create one, and concurrent attempts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from waltz.metadata.store import MetadataStore
from waltz.spark.core.ledger import (
    MAX_LEDGER_BYTES,
    AttemptedTask,
    Ledger,
    LedgerFull,
    LedgerMalformed,
    NewAttempt,
    WriteIsOver,
)
from waltz.spark.ledger_store import LedgerStore
from waltz.testing.zookeeper import MemoryZooKeeper


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


def ledger(store: MetadataStore, *, persistent: bool) -> LedgerStore:
    return LedgerStore(store, "", "a/write", persistent=persistent, timeout_seconds=5.0)


def attempt(client_id: int) -> NewAttempt:
    return NewAttempt(0, "run", client_id, client_id)


async def test_attempt_of_a_batch_joins_only_while_the_write_runs(
    zookeeper: MemoryZooKeeper,
) -> None:
    """An abandoned task must not append after the write has ended."""
    batch = ledger(zookeeper.connect(), persistent=False)
    with pytest.raises(WriteIsOver):
        await batch.join(attempt(1), {0: 3})
    await batch.create()
    joined = await batch.join(attempt(1), {0: 3})
    assert (set(joined.attempts), joined.marks) == ({1}, {0: 3})
    await batch.delete()
    with pytest.raises(WriteIsOver):
        await batch.join(attempt(2), {0: 3})


async def test_attempt_of_a_stream_creates_the_ledger(zookeeper: MemoryZooKeeper) -> None:
    joined = await ledger(zookeeper.connect(), persistent=True).join(attempt(1), {})
    assert set(joined.attempts) == {1}


async def test_concurrent_attempts_are_all_in_the_ledger(zookeeper: MemoryZooKeeper) -> None:
    stores = [ledger(zookeeper.connect(), persistent=True) for _ in range(4)]
    await asyncio.gather(*(each.join(attempt(n), {}) for n, each in enumerate(stores)))
    joined = await stores[0].join(attempt(9), {})
    assert set(joined.attempts) == {0, 1, 2, 3, 9}


async def test_malformed_ledger_is_reported(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    await store.create("/spark", None)
    await store.create("/spark/a%2Fwrite", b"[]")
    with pytest.raises(LedgerMalformed):
        await ledger(store, persistent=True).join(attempt(1), {})


async def test_attempt_without_room_in_the_ledger_is_refused_and_others_continue(
    zookeeper: MemoryZooKeeper,
) -> None:
    """ZooKeeper closes the connection instead: the attempt would retry until its time limit."""
    store, task, first = zookeeper.connect(), AttemptedTask(99_999, 0), 1_000_000
    one = Ledger("a/write", 0, ("run",), {0: 3}, {first: task})
    size_of_one = len(replace(one, attempts={first: task, first + 1: task}).encode()) - len(
        one.encode()
    )
    count = (MAX_LEDGER_BYTES - len(one.encode())) // size_of_one + 1
    full = replace(one, attempts={first + n: task for n in range(count)})
    await store.create("/spark", None)
    await store.create("/spark/a%2Fwrite", full.encode())
    stored = ledger(store, persistent=True)
    expected = rf"room in ZooKeeper for more than {count} attempts .* appends nothing; .*coalesce"
    with pytest.raises(LedgerFull, match=expected):
        await stored.join(NewAttempt(0, "run", task.task, first + count), {})
    assert len((await stored.join(NewAttempt(0, "run", task.task, first), {})).attempts) == count
    assert set((await stored.join(NewAttempt(1, "run", 0, 7), {})).attempts) == {7}
