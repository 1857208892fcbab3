"""``waltz storage``: move, retire, recover and compare replicas. Touches ZooKeeper, the network.

Each verb but ``compare`` carries out orders (`orders`). An interrupted move, retirement or recovery
continues when the same command is run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from waltz.admin import (
    ComparisonResult,
    Move,
    Order,
    RecordRepair,
    ReplicaRecovery,
    Retirement,
    UnknownPartition,
    compare_replicas,
)
from waltz.cli.admin_access import STORAGE_ANSWER_SECONDS
from waltz.cli.changes import Change, RecoveryChange, change, recovery_change, show_change
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import (
    AnyPartitions,
    DryRun,
    Partition,
    Yes,
    confirm,
    examples,
    partitions_of,
)
from waltz.cli.output import Format, Output, say, show
from waltz.cli.progress import progress_towards
from waltz.cli.running import (
    CONNECT_SECONDS,
    Failed,
    network_of,
    open_cluster,
    run,
    tls_of,
)
from waltz.cli.storage.orders import (
    OrderFailed,
    RecoveryResult,
    Steps,
    begun_steps,
    perform,
    recover_each,
)
from waltz.cli.storage.rows import ComparedPartition, render_comparisons
from waltz.cli.suggested import complete
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.retry import answered_within

app = typer.Typer()

Destination = Annotated[
    str,
    typer.Argument(metavar="DESTINATION", help="HOST:PORT of the storage that gets the replica."),
]
DeleteFiles = Annotated[
    bool, typer.Option("--delete-files", "-d", help="Delete the files of dropped replicas, too.")
]
AssignedPartitions = Annotated[
    str | None,
    typer.Argument(
        metavar="[RANGES]",
        help="Such as 0-6,7. Default: all that ZooKeeper assigns to the storage.",
    ),
]
StallTimeout = Annotated[
    float,
    typer.Option(
        "--timeout", "-t", min=1, help="Seconds without progress until the command fails."
    ),
]

_REPAIR_STALL_SECONDS = 10.0
"""After how many seconds without progress the repair of damaged records fails.

It is short, because ``waltz storage recover`` rebuilds a lost replica only after the repair has
ended.
"""


@app.command(
    "move",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage move storage-2:55280 storage-3:55280 4 --dry-run",
        "waltz storage move storage-2:55280 storage-3:55280 4",
    ),
)
@prints(Change)
def move_command(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="HOST:PORT of the storage that loses the replica."),
    ],
    destination: Destination,
    partition: Partition,
    delete_files: DeleteFiles = False,
    timeout: StallTimeout = 300.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Move a replica to another storage of the same group, while the partition is in use.

    The new replica is filled, servers take it into a session, and the old replica is dropped. All
    other replicas must be healthy. An interrupted move continues when the same command is run
    again.
    """
    if delete_files and not dry_run:
        confirm(f"The files of partition {partition} at {source} will be deleted", yes=yes)
    order = Move(partition, source, destination, delete_files)
    steps = _carry_out(target(context), order, timeout, dry_run=dry_run)
    moved = change(
        "storage move", f"partition {partition}", steps, partitions=[partition], dry_run=dry_run
    )
    show_change(output, moved, _ending(steps, dry_run=dry_run))


@app.command(
    "retire-group",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage retire-group 2 --dry-run", "waltz storage retire-group 2 --delete-files"
    ),
)
@prints(Change)
def retire_group_command(
    context: typer.Context,
    group: Annotated[
        int, typer.Argument(metavar="GROUP", min=0, help="The group whose replicas are removed.")
    ],
    delete_files: DeleteFiles = False,
    timeout: StallTimeout = 300.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Remove the replicas of a whole group: one replica of every partition.

    The remaining replicas must be healthy, and must be a quorum of the present ones. An interrupted
    retirement continues when the same command is run again. The storages stay registered: remove
    them with waltz storage remove.
    """
    if not dry_run:
        files = ", with its files" if delete_files else ""
        confirm(f"One replica of every partition will be dropped{files}", yes=yes)
    order = Retirement(group, delete_files)
    steps = _carry_out(target(context), order, timeout, dry_run=dry_run)
    retired = change("storage retire-group", f"group {group}", steps, dry_run=dry_run)
    show_change(output, retired, _ending(steps, dry_run=dry_run))


@app.command(
    "recover",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage recover storage-3:55280",
        "waltz storage recover storage-3:55280 4 --source storage-1:55280",
    ),
)
@prints(RecoveryChange)
def recover_command(
    context: typer.Context,
    destination: Destination,
    partitions: AssignedPartitions = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="HOST:PORT",
            help="Copy from this storage. Default: the healthy replica that reaches furthest.",
        ),
    ] = None,
    timeout: StallTimeout = 300.0,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Repair damaged records, and rebuild replicas whose disk was lost, from their peers.

    Records that the storage found damaged are repaired first, while the replica is in use. A
    replica whose disk was lost is created, switched off, filled without loading a server, and
    switched on; then servers take it into a session. A replica with an intact disk is never cut:
    servers bring it up to date. The partitions are recovered one after the other. If the recovery
    of one partition fails, the command continues with the next one, and its exit status is 1. An
    interrupted recovery continues when the same command is run again.
    """
    where, wanted = target(context), partitions_of(partitions)

    async def recover() -> tuple[tuple[int, ...], RecoveryResult]:
        chosen = wanted if wanted is not None else await _assigned_partitions(where, destination)
        return chosen, await recover_each(
            chosen,
            lambda partition: _recover(
                where, partition, destination, source, max_stall=timeout, dry_run=dry_run
            ),
        )

    chosen, recovered = run(recover(), seconds=None)
    for partition, reason in recovered.failures.items():
        say(f"waltz: the recovery of partition {partition} failed: {complete(reason)}")
    steps = recovered.steps
    recovery = change("storage recover", destination, steps, partitions=chosen, dry_run=dry_run)
    show_change(
        output,
        recovery_change(recovery, recovered.failures),
        "" if recovered.failures else _ending(steps, dry_run=dry_run),
    )
    if recovered.failures:
        raise typer.Exit(1)


async def _recover(
    where: Target,
    partition: int,
    destination: str,
    source: str | None,
    *,
    max_stall: float,
    dry_run: bool,
) -> Steps:
    """Repair the damaged records of a replica, then rebuild the replica if servers cannot use it.

    Return the steps of both orders. The replica is also rebuilt if the repair fails. If one or both
    orders fail, raises OrderFailed at the end, with the reasons and the steps of both.

    If the metadata cannot be decoded before the first step of the repair, raises MalformedMetadata
    at once: the rebuild would fail for the same reason, and there are no steps to report.
    """
    steps: Steps = ()
    problems = []
    try:
        steps = await perform(
            where,
            RecordRepair(partition, destination, source),
            max_stall=min(max_stall, _REPAIR_STALL_SECONDS),
            dry_run=dry_run,
            quiet_if_done=True,
        )
    except Failed as problem:
        steps = begun_steps(problem)
        problems.append(f"the damaged records are not repaired: {problem}")
    recovery = ReplicaRecovery(partition, destination, source)
    try:
        steps += await perform(where, recovery, max_stall=max_stall, dry_run=dry_run)
    except (Failed, MalformedMetadata) as problem:
        # MalformedMetadata is caught here, because `OrderFailed` below also has the steps and the
        # problem of the repair.
        steps += begun_steps(problem)
        # This reason comes first: without the rebuild, servers cannot use the replica at all.
        problems.insert(0, str(problem))
    if problems:
        raise OrderFailed("; ".join(problems), steps)
    return steps


async def _assigned_partitions(where: Target, storage: str) -> tuple[int, ...]:
    """Return the partitions that ZooKeeper assigns to a storage. Raises Failed if there are none.

    Otherwise the command would do nothing and report success for a misspelt address.
    """
    async with open_cluster(where) as cluster, answered_within(CONNECT_SECONDS):
        assigned = (await cluster.replica_assignments()).value.partitions.get(storage, ())
    if not assigned:
        raise Failed(
            f"ZooKeeper assigns no partition to storage {storage}; check the address, or name the "
            "partitions to recover, such as 0-6,7"
        )
    return tuple(sorted(assigned))


@app.command(
    "compare",
    cls=ClusterCommand,
    epilog=examples("waltz storage compare", "waltz storage compare 0-3 -o json"),
)
@prints(ComparedPartition, ResultForm.LIST)
def compare_command(
    context: typer.Context,
    partitions: AnyPartitions = None,
    output: Output = Format.TABLE,
) -> None:
    """Compare the replicas of partitions by checksums.

    Transactions committed before the present store session are compared, and the first transaction
    that differs is shown. A replica that is behind does not count as different. The exit status is
    1 if replicas differ, or if one of them cannot be read.
    """
    where, wanted = target(context), partitions_of(partitions)

    async def compare() -> dict[int, ComparisonResult]:
        async with open_cluster(where) as cluster:
            async with answered_within(CONNECT_SECONDS):
                count = (await cluster.params()).num_partitions
            results = {}
            chosen = range(count) if wanted is None else wanted
            for partition in chosen:
                results[partition] = await _compare(cluster, where, partition)
            return results

    results = run(compare(), seconds=None)
    show(output, render_comparisons(results))
    if not all(result.is_sound for result in results.values()):
        raise typer.Exit(1)


async def _compare(cluster: Cluster, where: Target, partition: int) -> ComparisonResult:
    """Compare the replicas of a partition, and show the progress. Raises Failed."""
    with progress_towards(f"partition {partition}") as advance:
        try:
            return await compare_replicas(
                cluster,
                await tls_of(where, cluster),
                partition,
                observation_seconds=STORAGE_ANSWER_SECONDS,
                metadata_seconds=CONNECT_SECONDS,
                # Ids start at 0, so id + 1 is the number of compared transactions.
                on_compared=lambda last_compared, last_id: advance(last_compared + 1, last_id + 1),
                network=network_of(where, cluster),
            )
        except UnknownPartition as problem:
            raise Failed(str(problem)) from problem


def _carry_out(where: Target, order: Order, max_stall: float, *, dry_run: bool) -> Steps:
    """Carry out an order that waits for servers, or print its dry run; return the steps."""
    return run(perform(where, order, max_stall=max_stall, dry_run=dry_run), seconds=None)


def _ending(steps: Sequence[str], *, dry_run: bool) -> str:
    """Return the sentence to print after the last step.

    It is empty in a dry run, because `say_forecast` has printed how the order would end.
    """
    if dry_run:
        return ""
    return "done" if steps else "nothing to do"
