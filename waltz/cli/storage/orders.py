"""Carry out the orders of ``waltz storage``, or print a dry run. Touches ZooKeeper, the network.

An order (`waltz.admin.Order`) is a goal about replicas or storages. From the state that is observed
after each step, the order decides what follows: another step, or a wait for a server or a storage
(`Wait`). It ends when the goal is reached (`Done`) or cannot be reached (`Refuse`). The dry run of
an order is its forecast: the steps that would follow if each step succeeded.

`perform` is for orders that may wait for servers or storages, `perform_directly` for those that
must not wait. Both pass a real run to `carry_out_order`, and a dry run to `print_forecast`.
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
from waltz.cli.suggested import complete
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
"""The end of an error message about an order that did not end: what the user should do."""


async def perform(
    where: Target, order: Order, *, max_stall: float, dry_run: bool, quiet_if_done: bool = False
) -> Steps:
    """Carry out an order that may wait for servers or storages; return its steps.

    A dry run only prints the steps. With ``quiet_if_done``, it prints nothing for an order without
    steps. Raises OrderFailed if the goal cannot be reached, or if there was no progress for
    ``max_stall`` seconds; in a dry run, Failed if the order would be refused. Raises StoreError,
    NoCluster or MalformedMetadata if the cluster cannot be read, UnsupportedByPeer if a storage is
    too old for a step.
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
                on_copied=lambda last_copied, last_id: advance(last_copied + 1, last_id + 1),
                network=network,
            )
            return await carry_out_order(executor, order, max_stall=max_stall)


class OrderFailed(Failed):
    """An order failed; the text says why, and ``steps`` are the steps that were begun before."""

    def __init__(self, reason: str, steps: Steps) -> None:
        super().__init__(reason)
        self.steps = steps


def begun_steps(problem: Exception) -> Steps:
    """Return the steps that were begun before ``problem``; none if it is not an `OrderFailed`."""
    return problem.steps if isinstance(problem, OrderFailed) else ()


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The result of the recoveries of several partitions.

    ``steps`` has the steps of all recoveries, also of those that failed. ``failures`` maps each
    partition whose recovery failed to the reason.
    """

    steps: Steps
    failures: Mapping[int, str]


async def recover_each(
    partitions: Iterable[int], recover: Callable[[int], Awaitable[Sequence[str]]]
) -> RecoveryResult:
    """Call ``recover``, which returns its steps, for each partition.

    If a recovery fails, or the metadata of its partition cannot be decoded, the other partitions
    are recovered nevertheless. A replica that is not rebuilt endangers its partition, because the
    loss of one more replica would be fatal. Other errors, such as those of ZooKeeper, concern all
    partitions. They are raised at once.
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
    """Return the executor of orders that wait for no server, such as an assignment.

    Such an order could only wait until a storage answers. So it does not wait at all: it fails if a
    storage does not answer a request. A storage has ``step_seconds`` for each step.
    """
    tls, network = await tls_of(where, cluster), network_of(where, cluster)
    return OrderExecutor(cluster, tls, step_seconds=step_seconds, retry=False, network=network)


async def perform_directly(
    cluster: Cluster, where: Target, order: Order, *, step_seconds: float, dry_run: bool
) -> Steps:
    """Carry out an order by `direct_executor`, or print its dry run; return the steps.

    The order never waits. A storage has ``step_seconds`` for each step. Raises Failed, also if the
    order would have to wait; UnsupportedByPeer.
    """
    executor = await direct_executor(cluster, where, step_seconds=step_seconds)
    if dry_run:
        return await print_forecast(executor, order, waiting_fails=True)
    return await carry_out_order(executor, order, max_stall=0.0, quiet=True)


async def carry_out_order(
    executor: OrderExecutor, order: Order, *, max_stall: float, quiet: bool = False
) -> Steps:
    """Carry out ``order``, and print its steps unless ``quiet``; return the steps.

    Raises OrderFailed if the order fails, or if there was no progress for ``max_stall`` seconds. If
    metadata cannot be decoded, raises MalformedMetadata before the first step and OrderFailed
    afterwards, so that the begun steps are known.
    """
    recorder = StepRecorder(quiet=quiet)
    try:
        await carry_out(order, executor, max_stall_seconds=max_stall, on_step=recorder)
    except NotPossible as problem:
        raise OrderFailed(str(problem), recorder.steps) from problem
    except Stalled as problem:
        raise OrderFailed(f"{complete(str(problem))}. {_RUN_AGAIN}", recorder.steps) from problem
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

    `say_forecast` describes the other arguments, and when Failed is raised.
    """
    planned = forecast(order, await executor.observe(order.scope))
    say_forecast(planned, waiting_fails=waiting_fails, quiet_if_done=quiet_if_done)
    return tuple(str(step) for step in planned.steps)


class StepRecorder:
    """Records the texts of the steps of an order, and prints its steps and waits unless ``quiet``.

    It is called with each step that begins, and with each wait.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._steps: list[str] = []

    def __call__(self, step: Step | Wait) -> None:
        """Record a step that begins; unless ``quiet``, print the step, or the reason of a wait."""
        if isinstance(step, Wait):
            text = f"waiting: {step.reason}"
        else:
            text = str(step)
            self._steps.append(text)
        if not self._quiet:
            say(text)

    @property
    def steps(self) -> Steps:
        """The texts of the steps so far."""
        return tuple(self._steps)


def say_forecast(
    planned: Forecast, *, waiting_fails: bool = False, quiet_if_done: bool = False
) -> None:
    """Print the steps of a dry run, and a wait that follows the last step.

    An order without steps is reported as done; with ``quiet_if_done``, nothing is printed for it.
    Raises Failed if the order would be refused; with ``waiting_fails``, also if it would wait
    before its first step. A wait after a step is only printed: it may be for servers, whose actions
    are not in the forecast (`waltz.admin.core.dry_run`).
    """
    steps, end = planned.steps, planned.end
    if isinstance(end, Refuse):
        raise Failed(end.reason)
    if isinstance(end, Wait) and waiting_fails and not steps:
        raise Failed(end.reason)
    for step in steps:
        say(f"would: {step}")
    match end:
        case Wait(reason):
            say(f"{'then it' if steps else 'the command'} would wait: {reason}")
        case Done():
            if not steps and not quiet_if_done:
                say("nothing is left to do")
