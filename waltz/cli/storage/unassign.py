"""``waltz storage unassign``: replicas taken away from a storage. ZooKeeper, the network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

import typer

from waltz.admin import (
    NotPossible,
    ReplicaOperator,
    Stalled,
    Told,
    Unassignment,
    carry_out,
    read_partitions,
)
from waltz.cli.admin_access import open_admin
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.options import DryRun, Partitions, Storage, Yes, confirm, examples, parsed
from waltz.cli.output import say
from waltz.cli.running import Failed, opened, run
from waltz.cli.storage.replica_steps import Only, check_possible, tell
from waltz.client.core.ranges import format_partitions, parse_partitions
from waltz.metadata.cluster import Cluster
from waltz.metadata.core import storage_maps as changes

app = typer.Typer()

_POLL_SECONDS = 0.1


@app.command(
    "unassign",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage unassign storage-3:55280 4",
        "waltz storage unassign storage-3:55280 0-6 --delete-files --yes",
        "waltz storage unassign storage-3:55280 4 --only zookeeper",
    ),
)
def unassign_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    delete_files: Annotated[
        bool, typer.Option("--delete-files", "-d", help="Delete their files, too.")
    ] = False,
    only: Only = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", "-t", min=0.1, help="Seconds after which it ends if nothing goes on."
        ),
    ] = 30.0,
    force: Annotated[
        bool,
        typer.Option(
            "--force", "-f", help="Even if the other replicas are not healthy, or no quorum."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take the replicas of these partitions away from a storage.

    The other replicas must be healthy, and a quorum. ZooKeeper is told first; when the servers have
    begun sessions without them, the storage drops them. For a storage that is gone for good:
    --only zookeeper.
    """
    where, wanted = target(context), parsed(parse_partitions, partitions)
    shown = format_partitions(wanted)
    if delete_files and not dry_run:
        confirm(f"the files of partitions {shown} at {storage} go", yes=yes)
    order = Unassignment(storage, wanted, delete_files, only)

    async def unassign() -> None:
        async with opened(where) as found:
            if only is not Told.STORAGE:
                changes.unassign_partitions(await found.storage_maps(), storage, wanted)
            if force:
                await _force(found, where, order, timeout, dry_run=dry_run)
            elif dry_run:
                observed = await ReplicaOperator(found, where.tls).observe(order.scope)
                check_possible(order.next_step(observed))
            else:
                await _carry_out(found, where, order, timeout)

    run(unassign(), seconds=None)
    say(f"storage {storage} {'would have' if dry_run else 'has'} partitions {shown} no longer")


async def _carry_out(cluster: Cluster, where: Target, order: Unassignment, patience: float) -> None:
    operator = ReplicaOperator(cluster, where.tls)
    try:
        taken = await carry_out(order, operator, patience_seconds=patience, on_step=tell)
    except NotPossible as problem:
        raise Failed(f"{problem}; --force does it nevertheless") from problem
    except Stalled as problem:
        raise Failed(
            f"{problem}. --force does not look at the other replicas. If ZooKeeper has been told "
            "already, the rest is done by: waltz storage sync"
        ) from problem
    if taken == 0 and order.only is Told.STORAGE:
        # A partition whose control entry is damaged is on no list.
        raise Failed(
            f"storage {order.storage} says that it does not hold partitions "
            f"{format_partitions(order.partitions)}; --force tells it nevertheless"
        )


async def _force(
    cluster: Cluster, where: Target, order: Unassignment, patience: float, *, dry_run: bool
) -> None:
    """Do it whatever the other replicas are like. Raises what the ports and the metadata do."""
    if dry_run:
        return
    if order.only is not Told.STORAGE:
        await cluster.unassign_partitions(order.storage, order.partitions)
    if order.only is not Told.ZOOKEEPER:
        maps = await cluster.storage_maps()
        async with await open_admin(cluster, maps, order.storage, where.tls) as admin:
            if order.only is not Told.STORAGE:
                await _let_go(cluster, order.storage, order.partitions, patience)
            await admin.unassign(order.partitions, delete_files=order.delete_files)


async def _let_go(
    cluster: Cluster, storage: str, partitions: Iterable[int], timeout_seconds: float
) -> None:
    """Return when no partition's present session has a replica on ``storage``. Raises Failed."""
    count = (await cluster.params()).num_partitions
    users: list[int] = []
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                metadata = await read_partitions(cluster, count)
                users = [p for p in partitions if p in metadata and storage in metadata[p].replicas]
                if not users:
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise Failed(
            f"partitions {format_partitions(users)} have not begun a session without {storage} "
            f"within {timeout_seconds:g} s; ZooKeeper gives them to it no longer, but it still "
            "holds them. When servers are running: waltz storage sync"
        ) from None
