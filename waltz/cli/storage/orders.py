"""Carry out the orders of the storage commands, or print a dry run. ZooKeeper, the network."""

from __future__ import annotations

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
from waltz.cli.running import Failed, opened
from waltz.metadata.cluster import Cluster

Only = Annotated[
    AssignmentSide | None,
    typer.Option("--only", help="Change only the assignment in ZooKeeper, or only the storage."),
]
StepTimeout = Annotated[
    float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each storage has for a step.")
]
STEP_SECONDS = 60.0
RUN_AGAIN = "The same command, typed again, continues."


async def perform(where: Target, order: Order, *, patience: float, dry_run: bool) -> int:
    """Carry out an order that waits for servers or storages; return the number of steps.

    A dry run prints the steps. Raises Failed if the goal cannot be reached, or no step is possible
    for ``patience`` seconds.
    """
    async with opened(where) as cluster:
        if dry_run:
            return await foresee(OrderExecutor(cluster, where.tls), order)
        with progress_towards("copied") as advance:
            executor = OrderExecutor(
                cluster, where.tls, on_copied=lambda at, last: advance(at + 1, last + 1)
            )
            return await finish(executor, order, patience=patience, hint="")


def direct(cluster: Cluster, where: Target, *, step_seconds: float = STEP_SECONDS) -> OrderExecutor:
    """Return the executor of orders that never wait: a storage must answer the first request."""
    return OrderExecutor(cluster, where.tls, step_seconds=step_seconds, retry=False)


async def perform_directly(
    cluster: Cluster, where: Target, order: Order, *, step_seconds: float, dry_run: bool
) -> None:
    """Carry out an order that never waits, or print its dry run. Raises Failed."""
    executor = direct(cluster, where, step_seconds=step_seconds)
    if dry_run:
        await foresee(executor, order, waiting_fails=True)
    else:
        await finish(executor, order, patience=0.0, hint=RUN_AGAIN, quiet=True)


async def finish(
    executor: OrderExecutor, order: Order, *, patience: float, hint: str, quiet: bool = False
) -> int:
    """Carry out ``order``, printing its steps unless ``quiet``; return their number.

    Raises Failed. If the order waited too long, its text is the reason, then ``hint``.
    """
    try:
        return await carry_out(
            order,
            executor,
            patience_seconds=patience,
            on_step=(lambda _: None) if quiet else say_step,
        )
    except NotPossible as problem:
        raise Failed(str(problem)) from problem
    except Stalled as problem:
        raise Failed(f"{problem}. {hint}" if hint else str(problem)) from problem


async def foresee(executor: OrderExecutor, order: Order, *, waiting_fails: bool = False) -> int:
    """Print the steps that ``order`` would take; return their number. Raises Failed."""
    foreseen = forecast(order, await executor.observe(order.scope))
    say_forecast(foreseen, waiting_fails=waiting_fails)
    return len(foreseen.steps)


def say_step(step: Step | Wait) -> None:
    """Print a step that begins, or the reason of a wait."""
    say(f"waiting: {step.reason}" if isinstance(step, Wait) else str(step))


def say_forecast(foreseen: Forecast, *, waiting_fails: bool = False) -> None:
    """Print the steps of a dry run and how they end.

    Raises Failed if the order would be refused, or, if ``waiting_fails``, would wait at once.
    """
    reason = foreseen.end.reason if isinstance(foreseen.end, Refuse | Wait) else ""
    if isinstance(foreseen.end, Refuse) or (reason and waiting_fails and not foreseen.steps):
        raise Failed(reason)
    for step in foreseen.steps:
        say(f"would: {step}")
    if isinstance(foreseen.end, Wait):
        say(f"then it would wait: {reason}" if foreseen.steps else f"it would wait: {reason}")
    elif not foreseen.steps:
        assert isinstance(foreseen.end, Done)
        say("nothing is left to do")
