"""Carry out the orders of ``waltz storage``, or print a dry run. Touches ZooKeeper, the network.

An order (`waltz.admin.Order`) is a goal about replicas or storages. After each step it decides from
the present state what follows: another step, a wait for a server or a storage, or its end, because
the goal is reached (`Done`) or cannot be reached (`Refuse`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from waltz.admin import (
    AssignmentSide,
    Done,
    Forecast,
    NotPossible,
    Order,
    OrderExecutor,
    Refuse,
    Stalled,
    Step,
    Wait,
    carry_out,
    forecast,
)
from waltz.cli.cluster_options import Target
from waltz.cli.output import say
from waltz.cli.progress import progress_towards
from waltz.cli.running import Failed, network_of, open_cluster, tls_of
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata

Only = Annotated[
    AssignmentSide | None,
    typer.Option(
        "--only",
        help="Change only the assignment in ZooKeeper, or only the replicas at the storage.",
    ),
]
StepTimeout = Annotated[
    float, typer.Option("--timeout", "-t", min=0.1, help="Seconds a storage has for one step.")
]
STEP_SECONDS = 60.0
"""The default of `StepTimeout`."""
Steps = tuple[str, ...]
"""The texts of the steps of an order, in their order."""
_RUN_AGAIN = "Run the same command again to continue."
"""The end of an error message: what the user should do."""


async def perform(
    where: Target, order: Order, *, max_stall: float, dry_run: bool, quiet_if_done: bool = False
) -> Steps:
    """Carry out an order that waits for servers or storages; return its steps.

    A dry run prints the steps; with ``quiet_if_done``, it prints nothing if nothing is to be done.
    Raises OrderFailed if the goal cannot be reached, or there was no progress for ``max_stall``
    seconds; Failed if a dry run would be refused; also the errors of ZooKeeper.
    """
    async with open_cluster(where) as cluster:
        tls, network = await tls_of(where, cluster), network_of(where, cluster)
        if dry_run:
            executor = OrderExecutor(cluster, tls, network=network)
            return await print_forecast(executor, order, quiet_if_done=quiet_if_done)
        with progress_towards("copied") as advance:
            # Ids start at 0, so id + 1 is the number of copied transactions.
            executor = OrderExecutor(
                cluster,
                tls,
                on_copied=lambda at, last: advance(at + 1, last + 1),
                network=network,
            )
            return await carry_out_order(executor, order, max_stall=max_stall)


class OrderFailed(Failed):
    """An order failed after its ``steps`` were begun; the text says why it failed."""

    def __init__(self, reason: str, steps: Steps) -> None:
        super().__init__(reason)
        self.steps = steps


def begun_steps(problem: Exception) -> Steps:
    """Return the steps that were begun before ``problem``: none if it is no `OrderFailed`."""
    return problem.steps if isinstance(problem, OrderFailed) else ()


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The steps of all recoveries, and for each partition that failed the reason.

    ``steps`` also has those that were begun by recoveries that failed.
    """

    steps: Steps
    failures: Mapping[int, str]


async def recover_each(
    partitions: Iterable[int], recover: Callable[[int], Awaitable[Sequence[str]]]
) -> RecoveryResult:
    """Call ``recover``, which returns its steps, for each partition.

    If a partition fails, or its metadata cannot be decoded, the others are recovered nevertheless:
    each replica that is rebuilt early shortens the time in which the loss of another one would be
    fatal. Other errors, such as those of ZooKeeper, concern all partitions: they are raised at
    once.
    """
    steps: list[str] = []
    failures = {}
    for partition in partitions:
        try:
            steps += await recover(partition)
        except (Failed, MalformedMetadata) as problem:
            failures[partition] = str(problem)
            steps += begun_steps(problem)
    return RecoveryResult(tuple(steps), failures)


async def direct_executor(
    cluster: Cluster, where: Target, *, step_seconds: float = STEP_SECONDS
) -> OrderExecutor:
    """Return the executor of orders that need one storage only, such as an assignment.

    Such an order has nothing to wait for except that storage, so it fails if the storage does not
    answer the first request.
    """
    tls, network = await tls_of(where, cluster), network_of(where, cluster)
    return OrderExecutor(cluster, tls, step_seconds=step_seconds, retry=False, network=network)


async def perform_directly(
    cluster: Cluster, where: Target, order: Order, *, step_seconds: float, dry_run: bool
) -> Steps:
    """Carry out an order by `direct_executor`, or print its dry run; never wait.

    Return the steps. A storage has ``step_seconds`` for one step. Raises Failed, UnsupportedByPeer.
    """
    executor = await direct_executor(cluster, where, step_seconds=step_seconds)
    if dry_run:
        return await print_forecast(executor, order, waiting_fails=True)
    return await carry_out_order(executor, order, max_stall=0.0, quiet=True)


async def carry_out_order(
    executor: OrderExecutor, order: Order, *, max_stall: float, quiet: bool = False
) -> Steps:
    """Carry out ``order``, printing its steps unless ``quiet``; return them.

    Raises OrderFailed, also if there was no progress for ``max_stall`` seconds, or if metadata
    cannot be decoded after the first step; before it, MalformedMetadata.
    """
    recorder = StepRecorder(quiet=quiet)
    try:
        await carry_out(order, executor, max_stall_seconds=max_stall, on_step=recorder)
    except NotPossible as problem:
        raise OrderFailed(str(problem), recorder.steps) from problem
    except Stalled as problem:
        raise OrderFailed(f"{problem}. {_RUN_AGAIN}", recorder.steps) from problem
    except MalformedMetadata as problem:
        if not recorder.steps:
            raise
        raise OrderFailed(str(problem), recorder.steps) from problem
    return recorder.steps


async def print_forecast(
    executor: OrderExecutor,
    order: Order,
    *,
    waiting_fails: bool = False,
    quiet_if_done: bool = False,
) -> Steps:
    """Print the steps that ``order`` would take; return them.

    Raises Failed under the same conditions as `say_forecast`.
    """
    planned = forecast(order, await executor.observe(order.scope))
    say_forecast(planned, waiting_fails=waiting_fails, quiet_if_done=quiet_if_done)
    return tuple(str(step) for step in planned.steps)


class StepRecorder:
    """Called with each step that begins and with each wait: prints both, and keeps the steps."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._steps: list[str] = []

    def __call__(self, step: Step | Wait) -> None:
        """Print a step that begins, or the reason of a wait, unless ``quiet``."""
        if not isinstance(step, Wait):
            self._steps.append(str(step))
        if not self._quiet:
            say(f"waiting: {step.reason}" if isinstance(step, Wait) else str(step))

    @property
    def steps(self) -> Steps:
        """The texts of the steps so far."""
        return tuple(self._steps)


def say_forecast(
    planned: Forecast, *, waiting_fails: bool = False, quiet_if_done: bool = False
) -> None:
    """Print the steps of a dry run, and what follows the last step.

    With ``quiet_if_done``, nothing is printed for an order that has nothing to do. Raises Failed if
    the order would be refused; with ``waiting_fails``, also if it would wait before its first step.
    """
    reason = planned.end.reason if isinstance(planned.end, Refuse | Wait) else ""
    waits_at_once = isinstance(planned.end, Wait) and not planned.steps
    if isinstance(planned.end, Refuse) or (waiting_fails and waits_at_once):
        raise Failed(reason)
    for step in planned.steps:
        say(f"would: {step}")
    if isinstance(planned.end, Wait):
        say(f"{'then it' if planned.steps else 'the command'} would wait: {reason}")
    elif not planned.steps and not quiet_if_done:
        assert isinstance(planned.end, Done)
        say("nothing is left to do")
