"""Test a partition of an application whose feed fails and works again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self, cast

import pytest

from tests.support.eventually import eventually
from waltz.client import ClientAhead, ClientClosed, Transaction
from waltz.protocol import ReqId
from waltz.runtime.core.json_metrics import JsonMetrics
from waltz.sync.callbacks import Application
from waltz.sync.callbacks.core.metrics import CallbackMetrics
from waltz.sync.callbacks.open_contexts import OpenContexts
from waltz.sync.callbacks.partition import ActivePartition
from waltz.sync.callbacks.workers import Workers


class Feed:
    """A stream that fails, or that has one transaction and then waits."""

    def __init__(self, outcome: Exception | Transaction[bytes]) -> None:
        self._outcome = outcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def batches(self) -> AsyncIterator[list[Transaction[bytes]]]:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        yield [self._outcome]
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        pass


class Client:
    """Opens the feeds one after the other."""

    client_id = 1

    def __init__(self, *outcomes: Exception | Transaction[bytes]) -> None:
        self._outcomes = list(outcomes)

    def stream(self, positions: dict[int, int], *, data: bool) -> Feed:
        return Feed(self._outcomes.pop(0))


class Silent(Application[bytes]):
    """Applies nothing and reports nothing."""

    def get_client_high_water_mark(self, partition: int) -> int:
        return -1

    def apply_transaction(self, transaction: Transaction[bytes]) -> None:
        pass

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        pass


async def test_partition_whose_feed_works_again_accepts_contexts() -> None:
    transaction = Transaction(0, 0, ReqId(9, 1, 0, 0), 0, b"x")
    client = Client(ClientAhead(0, 5, 3), transaction)
    workers = Workers(1, 1)
    partition = ActivePartition(
        0,
        -1,
        cast(Any, client),
        Silent(),
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        OpenContexts(0, 10),
    )
    running = asyncio.create_task(partition.run())
    await eventually(lambda: partition.problem is not None)
    with pytest.raises(ClientAhead):
        partition.check_accepts()
    await eventually(lambda: partition.mark == 0)
    partition.check_accepts()
    running.cancel()
    await partition.stop(ClientClosed)
    workers.shut_down()
