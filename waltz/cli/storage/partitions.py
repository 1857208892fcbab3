"""``waltz storage``: assign partitions to storages, switch replicas on and off, sync storages.

Touches ZooKeeper and the network. Each verb carries out an order (`orders`). The help does not list
``availability``, a verb of Waltz 0.13.2: ``switch`` does more, but not at storages of 0.13.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer

from waltz.admin import (
    Assignment,
    GroupAssignment,
    NotPossible,
    Order,
    Stalled,
    Step,
    Switching,
    Synchronization,
    Wait,
    carry_out,
    forecast,
)
from waltz.admin.core.steps import ChangeAssignment, CreateReplicas, DropReplicas
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import DryRun, OnOff, Partitions, Storage, examples, parse_argument
from waltz.cli.output import Format, Output, say, show
from waltz.cli.running import CONNECT_SECONDS, Failed, open_cluster, run
from waltz.cli.storage.orders import (
    STEP_SECONDS,
    Only,
    Steps,
    StepTimeout,
    direct_executor,
    perform_directly,
    say_forecast,
)
from waltz.cli.storage.rows import SyncedStorage, render_synced
from waltz.cli.suggested import complete
from waltz.metadata.cluster import Cluster
from waltz.metadata.retry import answered_within
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.notation import format_partitions, parse_partitions

app = typer.Typer()

_SYNC_LATER = "When the storage answers again, complete the changes with: waltz storage sync"
_NOTHING_ASSIGNED = "Nothing was assigned. Run the same command again when the storage answers."
"""What the user should do after a storage did not answer; `remedy` chooses one of these."""


@app.command(
    "assign",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage assign storage-3:55280 0-6,7",
        "waltz storage assign storage-3:55280 4 --only storage",
    ),
)
@prints(Change)
def assign_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    only: Only = None,
    timeout: StepTimeout = STEP_SECONDS,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Assign partitions to a running storage.

    The storage creates empty replicas, they are assigned in ZooKeeper, and servers fill them. To
    keep that load off the servers, run waltz storage recover first: it copies the partitions from
    other storages.
    """
    where, wanted = target(context), parse_argument(parse_partitions, partitions)
    order = Assignment(storage, wanted, only)

    async def assign() -> Steps:
        async with open_cluster(where) as cluster:
            return await perform_directly(
                cluster, where, order, step_seconds=timeout, dry_run=dry_run
            )

    steps = run(assign(), seconds=None)
    has = "would have" if dry_run else "now has"
    assigned = change("storage assign", storage, steps, partitions=wanted, dry_run=dry_run)
    show_change(output, assigned, f"storage {storage} {has} partitions {format_partitions(wanted)}")


@app.command(
    "auto-assign", cls=ClusterCommand, epilog=examples("waltz storage auto-assign 0 --dry-run")
)
@prints(SyncedStorage, ResultForm.LIST)
def auto_assign_command(
    context: typer.Context,
    group: Annotated[
        int, typer.Argument(metavar="GROUP", min=0, help="A group without any partitions.")
    ],
    timeout: StepTimeout = STEP_SECONDS,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Assign all partitions to the storages of a group, round-robin.

    Every storage of the group must be running.
    """
    where = target(context)

    async def assign() -> dict[str, SyncedStorage]:
        async with open_cluster(where) as cluster:
            async with answered_within(CONNECT_SECONDS):
                members = (await cluster.storage_maps()).group_members(group)
            changes = await _changes_of(
                cluster, where, GroupAssignment(group), timeout, dry_run=dry_run
            )
            return {member: changes.get(member, SyncedStorage(member)) for member in members}

    show(output, render_synced(run(assign(), seconds=None)))


@app.command(
    "sync",
    cls=ClusterCommand,
    epilog=examples("waltz storage sync --dry-run", "waltz storage sync storage-3:55280"),
)
@prints(SyncedStorage, ResultForm.LIST)
def sync_command(
    context: typer.Context,
    storages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST:PORT]...", help="The storages. Default: all."),
    ] = None,
    timeout: StepTimeout = STEP_SECONDS,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Make storages hold exactly the partitions that ZooKeeper assigns to them.

    Use this command after the disk of a storage was replaced. The files of partitions that a
    storage drops stay on its disk.
    """
    work = _sync_all(target(context), storages, timeout, dry_run=dry_run)
    changes, failures = run(work, seconds=None)
    every_storage_failed = bool(failures) and not changes
    if not every_storage_failed:
        show(output, render_synced(changes))
    for failure in failures:
        say(f"waltz: {complete(failure)}")
    if failures:
        raise typer.Exit(1)


@app.command(
    "availability",
    hidden=True,
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage availability storage-3:55280 0-6 off",
        "waltz storage availability storage-3:55280 0-6 on",
    ),
)
@prints(Change)
def availability_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    state: Annotated[
        OnOff, typer.Argument(metavar="on|off", help="Whether servers may use the replicas.")
    ],
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Switch reading and writing of partitions at one storage on or off together.

    Fill a switched-off replica from another storage with: waltz storage recover-partition
    """
    on = state is OnOff.ON
    wanted = parse_argument(parse_partitions, partitions)
    # Storages of Waltz 0.13.2 can only set both switches together.
    order = Switching(storage, wanted, read=on, write=on, together=True)
    steps = _switch(target(context), order, dry_run=dry_run)
    switched = change("storage availability", storage, steps, partitions=wanted, dry_run=dry_run)
    verb = "would be switched" if dry_run else "are switched"
    show_change(
        output,
        switched,
        f"partitions {format_partitions(wanted)} at {storage} {verb} {state.value}",
    )


@app.command(
    "switch",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage switch storage-3:55280 0-6 --write off",
        "waltz storage switch storage-3:55280 0-6 --read on --write on",
    ),
)
@prints(Change)
def switch_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    read: Annotated[
        OnOff | None, typer.Option(help="Whether servers may read the replicas.")
    ] = None,
    write: Annotated[
        OnOff | None, typer.Option(help="Whether servers may write the replicas.")
    ] = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Switch reading or writing of partitions at one storage on or off, each separately.

    Storages of Waltz 0.13.2 have one switch for reading and writing together: for them, use waltz
    storage availability.
    """
    wanted = parse_argument(parse_partitions, partitions)
    wanted_switches = {
        name: state is OnOff.ON
        for name, state in (("read", read), ("write", write))
        if state is not None
    }
    if not wanted_switches:
        raise typer.BadParameter("no switch is named: use --read on|off, --write on|off, or both")
    order = Switching(
        storage, wanted, read=wanted_switches.get("read"), write=wanted_switches.get("write")
    )
    steps = _switch(target(context), order, dry_run=dry_run)
    switched = change("storage switch", storage, steps, partitions=wanted, dry_run=dry_run)
    states = ", ".join(f"{name} {'on' if on else 'off'}" for name, on in wanted_switches.items())
    verb = "would be switched" if dry_run else "are switched"
    show_change(
        output, switched, f"partitions {format_partitions(wanted)} at {storage} {verb}: {states}"
    )


def _switch(where: Target, order: Switching, *, dry_run: bool) -> Steps:
    """Carry out ``order``, or print its dry run; return the steps.

    Raises Failed if ``order`` sets the two switches separately, and the storage has a single one.
    """

    async def switch() -> Steps:
        async with open_cluster(where) as cluster:
            try:
                return await perform_directly(
                    cluster, where, order, step_seconds=STEP_SECONDS, dry_run=dry_run
                )
            except UnsupportedByPeer:
                raise Failed(
                    f"storage {order.storage} has one switch for reading and writing, like "
                    "Waltz 0.13.2; upgrade the storage, or switch both with: waltz storage "
                    f"availability {order.storage} {format_partitions(order.partitions)} on|off"
                ) from None

    return run(switch(), seconds=None)


async def _sync_all(
    where: Target, storages: Iterable[str] | None, step_seconds: float, *, dry_run: bool
) -> tuple[dict[str, SyncedStorage], list[str]]:
    """Synchronize ``storages`` one after the other; each has ``step_seconds`` for a step.

    None means all storages to which ZooKeeper assigns partitions. If a storage fails, the command
    continues with the next one. Return what changed at each storage that did not fail, and the
    error texts of the storages that failed.
    """
    synced: dict[str, SyncedStorage] = {}
    failures: list[str] = []
    async with open_cluster(where) as cluster:
        async with answered_within(CONNECT_SECONDS):
            assigned = (await cluster.replica_assignments()).value.partitions
        for storage in storages or sorted(assigned):
            order = Synchronization(storage)
            try:
                changes = await _changes_of(cluster, where, order, step_seconds, dry_run=dry_run)
                synced[storage] = changes.get(storage, SyncedStorage(storage))
            except Failed as problem:
                failures.append(str(problem))
    return synced, failures


async def _changes_of(
    cluster: Cluster, where: Target, order: Order, step_seconds: float, *, dry_run: bool
) -> dict[str, SyncedStorage]:
    """Carry out an order, or print its dry run; return the changed replicas by storage.

    A storage without changes is not in the result. Raises Failed if the order is refused. Otherwise
    raises Failed as soon as a step fails, or the order would have to wait. In a dry run, no step
    fails, and only a wait before the first step raises Failed.
    """
    steps: list[Step | Wait] = []
    executor = await direct_executor(cluster, where, step_seconds=step_seconds)
    if dry_run:
        planned = forecast(order, await executor.observe(order.scope))
        say_forecast(planned, waiting_fails=True)
        steps.extend(planned.steps)
    else:
        try:
            # With 0 seconds, the first step that fails and the first wait raise Stalled.
            await carry_out(order, executor, max_stall_seconds=0.0, on_step=steps.append)
        except NotPossible as problem:
            raise Failed(str(problem)) from problem
        except Stalled as problem:
            raise Failed(f"{problem}. {remedy(order, steps)}") from problem
    return replica_changes(steps)


def remedy(order: Order, begun_steps: Iterable[Step | Wait]) -> str:
    """Return what the user should do after ``order`` failed; it had begun ``begun_steps``.

    A `GroupAssignment` first changes the assignment in ZooKeeper, and then its storages create the
    replicas. Before the change in ZooKeeper, ``waltz storage sync`` would have nothing to complete.
    After the change, the same order would be refused, because the group has partitions. A change
    that was begun counts as made, because ZooKeeper may have executed it.
    """
    may_be_assigned = any(isinstance(step, ChangeAssignment) for step in begun_steps)
    if isinstance(order, GroupAssignment) and not may_be_assigned:
        return _NOTHING_ASSIGNED
    return _SYNC_LATER


def replica_changes(steps: Iterable[Step | Wait]) -> dict[str, SyncedStorage]:
    """Return the storages that ``steps`` change, each with its created and dropped replicas."""
    changes: dict[str, SyncedStorage] = {}
    for step in steps:
        if not isinstance(step, CreateReplicas | DropReplicas):
            continue
        so_far = changes.get(step.storage, SyncedStorage(step.storage))
        if isinstance(step, CreateReplicas):
            changes[step.storage] = replace(so_far, assigned=(*so_far.assigned, *step.partitions))
        else:
            unassigned = (*so_far.unassigned, *step.partitions)
            changes[step.storage] = replace(so_far, unassigned=unassigned)
    return changes
