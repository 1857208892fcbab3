"""Test a partition of an application whose feed fails and works again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import pytest

from tests.support.eventually import eventually
from waltz.client import ClientAhead, ClientClosed, ClusterUnreachable, Draft, Transaction
from waltz.protocol import ReqId
from waltz.runtime.core.json_metrics import JsonMetrics
from waltz.sync.callbacks import Application, TransactionBuilder, TransactionContext
from waltz.sync.callbacks.core.metrics import CallbackMetrics
from waltz.sync.callbacks.open_contexts import OpenContexts, Submission, SubmittedContext
from waltz.sync.callbacks.partition import ActivePartition
from waltz.sync.callbacks.workers import Workers


class Feed:
    """A stream that fails, or that has one batch of transactions, if any, and then waits."""

    def __init__(self, outcome: Exception | Transaction[bytes] | list[Transaction[bytes]]) -> None:
        self._outcome = outcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def batches(self) -> AsyncIterator[list[Transaction[bytes]]]:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        batch = self._outcome if isinstance(self._outcome, list) else [self._outcome]
        if batch:
            yield batch
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        pass


class Client:
    """Opens the feeds one after the other, and returns the high-water marks one after the other."""

    client_id = 1

    def __init__(
        self,
        *outcomes: Exception | Transaction[bytes] | list[Transaction[bytes]],
        log_marks: Sequence[int] = (),
    ) -> None:
        self._outcomes = list(outcomes)
        self._log_marks = list(log_marks)

    def stream(self, positions: dict[int, int], *, data: bool) -> Feed:
        return Feed(self._outcomes.pop(0))

    async def high_water_mark(self, partition: int) -> int:
        return self._log_marks.pop(0)


def transaction(number: int) -> Transaction[bytes]:
    return Transaction(0, number, ReqId(9, 1, 0, number), 0, b"x")


class Silent(Application[bytes]):
    """Applies nothing and reports nothing."""

    def get_client_high_water_mark(self, partition: int) -> int:
        return -1

    def apply_transaction(self, transaction: Transaction[bytes]) -> None:
        pass

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        pass


async def test_partition_whose_feed_works_again_accepts_contexts() -> None:
    client = Client(ClientAhead(0, 5, 3), transaction(0), log_marks=[0])
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


async def test_problem_of_a_feed_ends_with_the_next_batch() -> None:
    workers = Workers(1, 1)
    partition = ActivePartition(
        0,
        -1,
        cast(Any, Client(ClusterUnreachable("no answer"), transaction(0))),
        Silent(),
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        OpenContexts(0, 10),
    )
    running = asyncio.create_task(partition.run())
    await eventually(lambda: str(partition.problem) == "no answer")
    await eventually(lambda: partition.mark == 0)
    assert partition.problem is None
    running.cancel()
    await partition.stop(ClientClosed)
    workers.shut_down()


async def test_partition_accepts_contexts_when_the_log_ends_at_its_mark_again() -> None:
    """The feed of such a log has no batch until another client appends."""
    workers = Workers(1, 1)
    partition = ActivePartition(
        0,
        5,
        cast(Any, Client(ClientAhead(0, 5, 3), [], log_marks=[4, 5])),
        Silent(),
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        OpenContexts(0, 10),
    )
    running = asyncio.create_task(partition.run())
    try:
        await eventually(lambda: "ends at transaction 4" in str(partition.problem))
        with pytest.raises(ClientAhead):
            partition.check_accepts()
        await eventually(lambda: partition.problem is None)
        partition.check_accepts()
    finally:
        running.cancel()
        workers.shut_down()


async def test_stop_lets_a_submission_return_that_waits_at_the_limit() -> None:
    """Its thread would otherwise wait until its timeout for a partition that has stopped."""
    workers = Workers(1, 1)
    open_contexts = OpenContexts(0, 1)
    open_contexts.add(Submission(), 0)
    partition = ActivePartition(
        0,
        -1,
        cast(Any, Client()),
        Silent(),
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        open_contexts,
    )
    second = Submission()
    waiting = asyncio.create_task(asyncio.to_thread(open_contexts.add, second, 5.0))
    await partition.stop(ClientClosed)
    await waiting
    assert second.number == 1
    workers.shut_down()


class Context(TransactionContext[bytes]):
    """Appends nothing by itself: a test passes its draft."""

    def execute(self, builder: TransactionBuilder[bytes]) -> bool:
        return False


class CommittingClient(Client):
    """A client whose appends are committed as the transactions from 0 on."""

    _last_id = -1

    async def append(self, partition: int, data: bytes, **_: object) -> int:
        self._last_id += 1
        return self._last_id


class CountingWorkers(Workers):
    """Counts the calls that overlap."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self._running = 0
        self.most_running = 0

    async def apply(self, work: Callable[..., Any], *args: Any, **_: Any) -> Any:
        self._running += 1
        self.most_running = max(self.most_running, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        return work(*args)


async def test_callbacks_of_appends_that_end_after_the_partition_do_not_overlap() -> None:
    workers, open_contexts = CountingWorkers(), OpenContexts(0, 10)
    partition = ActivePartition(
        0,
        -1,
        cast(Any, CommittingClient(ClientClosed())),
        Silent(),
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        open_contexts,
    )
    await partition.run()
    submissions = [Submission() for _ in range(3)]
    for submission in submissions:
        open_contexts.add(submission, None)
    submitted = [SubmittedContext(each.number, Context(), 0.0) for each in submissions]
    await asyncio.gather(*(partition.append(each, Draft(b"x")) for each in submitted))
    assert len(open_contexts) == 0
    assert workers.most_running == 1
    workers.shut_down()


class Stepwise(Silent):
    """Applies each transaction when the test allows it."""

    def __init__(self, count: int) -> None:
        self.begun = [threading.Event() for _ in range(count)]
        self.may_end = [threading.Event() for _ in range(count)]

    def apply_transaction(self, transaction: Transaction[bytes]) -> None:
        self.begun[transaction.id].set()
        assert self.may_end[transaction.id].wait(20)


async def test_wait_for_a_transaction_does_not_wait_for_the_rest_of_its_batch() -> None:
    """After a lock failure, `append` waits so; the rest of a batch may take long."""
    workers, application = Workers(1, 1), Stepwise(2)
    partition = ActivePartition(
        0,
        -1,
        cast(Any, Client([transaction(0), transaction(1)])),
        application,
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        OpenContexts(0, 10),
    )
    running = asyncio.create_task(partition.run())
    await asyncio.to_thread(application.begun[0].wait, 20)
    waiting = asyncio.create_task(partition.applied_up_to(0))
    await asyncio.sleep(0)
    application.may_end[0].set()
    try:
        await asyncio.wait_for(waiting, 20)
        assert partition.mark == 0
    finally:
        application.may_end[1].set()
    running.cancel()
    await partition.stop(ClientClosed)
    workers.shut_down()


class FailingWorkers(Workers):
    """Has no thread for its first calls of `apply`."""

    def __init__(self, failures: int) -> None:
        super().__init__(1, 1)
        self._failures = failures

    async def apply(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._failures:
            self._failures -= 1
            raise RuntimeError("no thread")
        return await super().apply(work, *args, **kwargs)


@dataclass
class Completed(Context):
    """Counts the calls of `on_completion`."""

    calls: int = 0

    def on_completion(self, result: bool) -> None:
        self.calls += 1


async def committed(
    workers: Workers, feed: list[Transaction[bytes]]
) -> tuple[ActivePartition[bytes], list[Completed]]:
    """Return a partition with two contexts whose transactions are in the log, before its `run`."""
    partition = ActivePartition(
        0,
        -1,
        cast(Any, CommittingClient(feed)),
        Silent(),
        workers,
        CallbackMetrics(JsonMetrics(lambda: 0.0), 0),
        OpenContexts(0, 10),
    )
    contexts = [Completed(), Completed()]
    for context in contexts:
        submission = Submission()
        partition.open_contexts.add(submission, None)
        await partition.append(SubmittedContext(submission.number, context, 0.0), Draft(b"x"))
    assert len(partition.open_contexts) == 2
    return partition, contexts


@pytest.mark.parametrize(("failures", "completed"), [(2, [1, 1]), (10, [0, 0])])
async def test_unexpected_error_of_a_run_ends_its_contexts(
    failures: int, completed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """`flush` would wait for them forever. The first two calls apply, and report the error."""
    workers = FailingWorkers(failures)
    partition, contexts = await committed(workers, [transaction(0)])
    with contextlib.suppress(RuntimeError):
        await partition.run()
    assert "partition 0: unexpected error" in caplog.text
    assert len(partition.open_contexts) == 0
    assert [context.calls for context in contexts] == completed
    with pytest.raises(ClientClosed, match="partition 0 is not applied any more"):
        partition.check_accepts()
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(partition.applied_up_to(0), 20)
    workers.shut_down()


async def test_cancellation_of_a_run_ends_its_contexts() -> None:
    workers = Workers(1, 1)
    partition, contexts = await committed(workers, [])
    running = asyncio.create_task(partition.run())
    waiting = asyncio.create_task(partition.applied_up_to(0))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(waiting, 20)
    assert running.cancelled()
    assert len(partition.open_contexts) == 0
    assert [context.calls for context in contexts] == [0, 0]
    workers.shut_down()


async def test_run_whose_workers_have_ended_ends_its_contexts() -> None:
    """So it is while the interpreter exits and the client is not closed."""
    workers = Workers(1, 1)
    partition, contexts = await committed(workers, [transaction(0)])
    workers.shut_down()
    await partition.run()
    assert len(partition.open_contexts) == 0
    assert [context.calls for context in contexts] == [0, 0]
