"""Put load on a cluster: append a planned number of transactions, and read them.

Touches ZooKeeper and the network. The verbs of ``waltz bench`` measure and check with these
functions.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from waltz.cli.bench.validation import Validation, checked_draft
from waltz.cli.client_access import ANSWER_SECONDS, batches_within, open_client
from waltz.cli.cluster_options import Target
from waltz.cli.progress import Advance
from waltz.cli.running import Failed
from waltz.client import Attempt, Client, Draft, Transaction

Write = Callable[[Client, int], Awaitable[int]]
"""Appends one transaction to a partition; returns the number of attempts.

More than one attempt is needed if another append has taken the lock first.
"""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The appends of ``clients`` clients to ``partitions``.

    Each client appends ``transactions`` transactions, and has ``in_flight`` of them in flight at
    once. The pauses before appends are exponentially distributed with the mean ``interval_ms``, in
    milliseconds.
    """

    partitions: Sequence[int]
    clients: int
    transactions: int
    in_flight: int = 1
    interval_ms: float = 0.0

    @property
    def total(self) -> int:
        """The number of transactions of all clients together."""
        return self.clients * self.transactions


@dataclass(slots=True)
class Measurements:
    """The measurements of a load.

    ``durations`` has the seconds from the call of each append to its result. ``attempts`` is the
    sum of the attempts of all appends. The whole load took ``seconds``.
    """

    durations: list[float] = field(default_factory=list)
    attempts: int = 0
    seconds: float = 0.0


async def produce(where: Target, plan: LoadPlan, write: Write, advance: Advance) -> Measurements:
    """Append the transactions of ``plan``, each by a call of ``write``; return the measurements.

    Raises WaltzError, and Failed if the cluster lacks one of the partitions.
    """
    measured = Measurements()
    async with AsyncExitStack() as stack:
        clients = await _open_clients(where, plan, stack)
        num_partitions = clients[0].num_partitions
        if (last := max(plan.partitions)) >= num_partitions:
            # Checked before the first append, because appended transactions cannot be removed.
            raise Failed(
                f"there is no partition {last}: the cluster has partitions 0 to "
                f"{num_partitions - 1}"
            )
        begun = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:
                for client in clients:
                    # The producers of a client share one iterator: together they append
                    # ``plan.transactions`` transactions.
                    turns = iter(range(plan.transactions))
                    for _ in range(min(plan.in_flight, plan.transactions)):
                        tasks.create_task(_producer(client, plan, write, turns, measured, advance))
        except ExceptionGroup as failures:
            # The first failure cancels all other producers, so it is the cause to report.
            raise failures.exceptions[0] from None
        measured.seconds = time.perf_counter() - begun
    return measured


async def _open_clients(where: Target, plan: LoadPlan, stack: AsyncExitStack) -> list[Client]:
    """Open the clients of ``plan``, which ``stack`` closes. Raises WaltzError."""
    try:
        # If a client cannot be opened, the group cancels the other tasks and waits for them. A task
        # that opened its client after ``stack`` was closed would leave this client open.
        async with asyncio.TaskGroup() as tasks:
            opening_tasks = [
                tasks.create_task(
                    stack.enter_async_context(open_client(where, max_in_flight=plan.in_flight))
                )
                for _ in range(plan.clients)
            ]
    except ExceptionGroup as failures:
        # As in `produce`, the first failure is the cause.
        raise failures.exceptions[0] from None
    return [task.result() for task in opening_tasks]


async def read_all(
    client: Client, after: Mapping[int, int], until: Mapping[int, int], seconds: float | None
) -> AsyncIterator[list[Transaction]]:
    """Yield each partition's transactions after the id in ``after``, up to the id in ``until``.

    Raises Failed if a batch takes longer than ``seconds`` (None: no limit).
    """
    # A partition without transactions between the two ids is left out: nothing is to be read.
    last_ids = {partition: last for partition, last in until.items() if last > after[partition]}
    start_after = {partition: after[partition] for partition in last_ids}
    if not last_ids:
        return
    stream = client.stream(start_after, until=last_ids, data=True)
    async for batch in batches_within(stream, seconds):
        yield batch


async def validate(
    client: Client,
    after: Mapping[int, int],
    num_wanted: int,
    seconds: float | None,
    advance: Advance,
) -> dict[int, Validation]:
    """Read until ``num_wanted`` checked transactions have arrived; return the checks, by partition.

    The keys of ``after`` are the partitions to check. Each partition is read after its id in
    ``after``. ``advance`` is called with the number of checked transactions of each batch. Raises
    Failed if a batch takes longer than ``seconds`` (None: no limit).
    """
    validations = {partition: Validation() for partition in after}
    num_missing = num_wanted
    async for batch in batches_within(client.stream(after, data=True), seconds):
        num_checked = 0
        for transaction in batch:
            if validations[transaction.partition].check_next(transaction):
                num_checked += 1
        advance(num_checked)
        num_missing -= num_checked
        if num_missing <= 0:
            break
    return validations


async def write_checked(client: Client, partition: int) -> int:
    """Append a transaction that `Validation` checks; return the number of attempts."""
    return await _submit(client, partition, checked_draft)


def unlocked_write(data: bytes) -> Write:
    """Return a function that appends ``data`` without locks."""

    async def write(client: Client, partition: int) -> int:
        await client.append(partition, data)
        return 1

    return write


def locked_write(build: Callable[[Attempt], Draft]) -> Write:
    """Return a function that appends a draft of ``build``, which has locks.

    If an append is refused because of a lock, the function appends a new draft of ``build``.
    """

    async def write(client: Client, partition: int) -> int:
        return await _submit(client, partition, build)

    return write


async def _submit(client: Client, partition: int, build: Callable[[Attempt], Draft]) -> int:
    """Append a draft of ``build``; return the number of attempts.

    The client calls ``build`` for each attempt. It makes another attempt if the append is refused
    because of a lock.
    """
    attempts = 0

    def build_and_count(attempt: Attempt) -> Draft:
        nonlocal attempts
        attempts = attempt.number
        return build(attempt)

    await client.submit(partition, build_and_count, timeout=ANSWER_SECONDS)
    return attempts


async def _producer(
    client: Client,
    plan: LoadPlan,
    write: Write,
    turns: Iterator[int],
    measured: Measurements,
    advance: Advance,
) -> None:
    """Append one transaction for each number that this producer takes from ``turns``.

    The producers of a client share ``turns``. The number decides the partition, so a client appends
    to the partitions in rotation.
    """
    for turn in turns:
        if plan.interval_ms > 0:
            appends_per_second = 1000 / plan.interval_ms
            await asyncio.sleep(random.expovariate(appends_per_second))
        begun = time.perf_counter()
        attempts = await write(client, plan.partitions[turn % len(plan.partitions)])
        measured.attempts += attempts
        measured.durations.append(time.perf_counter() - begun)
        advance(1)
