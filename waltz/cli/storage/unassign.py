"""``waltz storage unassign``: remove replicas from a storage. Touches ZooKeeper and the network."""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.admin import (
    AssignmentSide,
    NotPossible,
    OrderExecutor,
    OrderRefused,
    Stalled,
    Unassignment,
    carry_out,
)
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import prints
from waltz.cli.options import DryRun, Partitions, Storage, Yes, confirm, examples, parse_argument
from waltz.cli.output import Format, Output
from waltz.cli.running import Failed, network_of, open_cluster, run, tls_of
from waltz.cli.storage.orders import Only, StepRecorder, Steps, print_forecast
from waltz.protocol.notation import format_partitions, parse_partitions

app = typer.Typer()


@app.command(
    "unassign",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage unassign storage-3:55280 4",
        "waltz storage unassign storage-3:55280 0-6 --delete-files --yes",
        "waltz storage unassign storage-3:55280 4 --only zookeeper",
    ),
)
@prints(Change)
def unassign_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    delete_files: Annotated[
        bool, typer.Option("--delete-files", "-d", help="Delete the files of the replicas, too.")
    ] = False,
    only: Only = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", "-t", min=0.1, help="Seconds without progress until the command fails."
        ),
    ] = 30.0,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            "-f",
            help="Remove replicas even if the other replicas are not healthy, or not a quorum.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Remove the replicas of these partitions from a storage.

    The other replicas must be healthy, and a quorum. The assignment in ZooKeeper changes first;
    when servers have begun sessions without the replicas, the storage drops them. If the storage
    will never run again, use --only zookeeper.
    """
    where, wanted = target(context), parse_argument(parse_partitions, partitions)
    if delete_files and only is AssignmentSide.ZOOKEEPER:
        raise typer.BadParameter(
            "--delete-files changes the storage: leave out either it or --only zookeeper"
        )
    shown = format_partitions(wanted)
    if delete_files and not dry_run:
        confirm(f"The files of partitions {shown} at {storage} will be deleted", yes=yes)
    order = Unassignment(storage, wanted, delete_files, only, force)

    async def unassign() -> Steps:
        async with open_cluster(where) as cluster:
            tls, network = await tls_of(where, cluster), network_of(where, cluster)
            executor = OrderExecutor(cluster, tls, network=network)
            if dry_run:
                # If the order would have to wait before its first step, such as for an unhealthy
                # replica, the dry run fails with this reason.
                return await print_forecast(executor, order, waiting_fails=True)
            return await _carry_out(executor, order, timeout)

    steps = run(unassign(), seconds=None)
    has = "would no longer have" if dry_run else "no longer has"
    changed = change("storage unassign", storage, steps, partitions=wanted, dry_run=dry_run)
    show_change(output, changed, f"storage {storage} {has} partitions {shown}")


async def _carry_out(executor: OrderExecutor, order: Unassignment, max_stall: float) -> Steps:
    """Carry out the order, print its steps, and return them.

    Raises Failed, also if there was no progress for ``max_stall`` seconds. The text says what the
    user can do.
    """
    recorder = StepRecorder()
    try:
        num_steps = await carry_out(order, executor, max_stall_seconds=max_stall, on_step=recorder)
    except OrderRefused as problem:
        # Without the advice below: the rules that refuse an order are also valid with --force.
        raise Failed(str(problem)) from problem
    except NotPossible as problem:
        raise Failed(f"{problem}; --force removes the replicas nevertheless") from problem
    except Stalled as problem:
        raise Failed(
            f"{problem}. With --force, the other replicas are not checked. If the assignment in "
            "ZooKeeper has changed already, run the same command again when the storage answers: "
            "the storage then drops the replicas, and with --delete-files also deletes their files"
        ) from problem
    if num_steps == 0 and order.only is AssignmentSide.STORAGE:
        # The storage does not report a partition whose control entry is damaged, although it has
        # files of the partition. So it may have something to remove after all.
        raise Failed(
            f"storage {order.storage} reports that it does not hold partitions "
            f"{format_partitions(order.partitions)}; --force sends the request nevertheless"
        )
    return recorder.steps
