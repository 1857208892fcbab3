"""``waltz storage``: replicas moved, retired, recovered, compared. ZooKeeper and the network.

The first three are made of small steps, each of which may be broken off: the same command again
goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from waltz.admin import (
    Compared,
    Move,
    NotPossible,
    Order,
    ReplicaOperator,
    ReplicaRecovery,
    Retirement,
    Stalled,
    UnknownPartition,
    carry_out,
    compare_replicas,
)
from waltz.cli.cluster_options import ClusterCommand, Target, target
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
from waltz.cli.rows import Rows, Shown, or_dash
from waltz.cli.running import Failed, opened, run
from waltz.cli.storage.replica_steps import foretell, tell
from waltz.metadata.cluster import Cluster

app = typer.Typer()

Destination = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="HOST:PORT of the storage that gets it.")
]
DeleteFiles = Annotated[
    bool, typer.Option("--delete-files", "-d", help="Delete what is given up, files and all.")
]
Patience = Annotated[
    float,
    typer.Option("--timeout", "-t", min=1, help="Seconds after which it ends if nothing goes on."),
]


@app.command(
    "move",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage move storage-2:55280 storage-3:55280 4 --dry-run",
        "waltz storage move storage-2:55280 storage-3:55280 4",
    ),
)
def move_command(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="HOST:PORT that gives it up.")],
    destination: Destination,
    partition: Partition,
    delete_files: DeleteFiles = False,
    timeout: Patience = 300.0,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Move a partition to another storage of the same group, while it is in use.

    It is filled there first, then servers take it in, then it is given up where it was. All other
    replicas must be healthy. Broken off, the same command goes on.
    """
    if delete_files and not dry_run:
        confirm(f"the files of partition {partition} at {source} go", yes=yes)
    order = Move(partition, source, destination, delete_files)
    _carry_out(target(context), order, timeout, dry_run=dry_run)


@app.command(
    "retire-group",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage retire-group 2 --dry-run", "waltz storage retire-group 2 --delete-files"
    ),
)
def retire_group_command(
    context: typer.Context,
    group: Annotated[
        int, typer.Argument(metavar="GROUP", min=0, help="The group to take out of use.")
    ],
    delete_files: DeleteFiles = False,
    timeout: Patience = 300.0,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take a whole group out of use, and with it one replica of every partition.

    What remains must be healthy, and a quorum both of what there is and of what there will be.
    Broken off, the same command goes on. The storages stay known: see waltz storage remove.
    """
    if not dry_run:
        files = ", and its files" if delete_files else ""
        confirm(f"one replica of every partition goes{files}", yes=yes)
    _carry_out(target(context), Retirement(group, delete_files), timeout, dry_run=dry_run)


@app.command(
    "recover",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage recover storage-3:55280 4",
        "waltz storage recover storage-3:55280 4 --source storage-1:55280",
    ),
)
def recover_command(
    context: typer.Context,
    destination: Destination,
    partition: Partition,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="HOST:PORT", help="Copy from this storage. Without: any."),
    ] = None,
    timeout: Patience = 300.0,
    dry_run: DryRun = False,
) -> None:
    """Bring back a replica whose disk was lost, by a copy that burdens no server.

    The replica is made, switched off, filled, and switched on; then servers take it in. A replica
    whose disk is intact is never cut: servers bring it up to date themselves. Broken off, the same
    command goes on.
    """
    order = ReplicaRecovery(partition, destination, source)
    _carry_out(target(context), order, timeout, dry_run=dry_run)


@app.command(
    "compare",
    cls=ClusterCommand,
    epilog=examples("waltz storage compare", "waltz storage compare 0-3 -o json"),
)
def compare_command(
    context: typer.Context,
    partitions: AnyPartitions = None,
    output: Output = Format.TABLE,
) -> None:
    """Compare the replicas of partitions by checksums. The exit status is 1 if they differ.

    What was committed before the present store session is compared, and the first transaction that
    differs is named. A replica that is behind does not differ.
    """
    where, wanted = target(context), partitions_of(partitions)

    async def compare() -> dict[int, Compared]:
        async with opened(where) as found:
            count = (await found.params()).num_partitions
            results = {}
            for partition in wanted if wanted is not None else range(count):
                results[partition] = await _compare(found, where, partition)
            return results

    compared = run(compare(), seconds=None)
    show(output, shown(compared))
    if not all(each.is_sound for each in compared.values()):
        raise typer.Exit(1)


def shown(compared: Mapping[int, Compared]) -> Shown:
    """Return what is shown of comparisons, by partition."""
    value = [_value(partition, each) for partition, each in compared.items()]
    cells = [
        (
            v["partition"],
            v["compared_to"],
            or_dash(v["first_difference"]),
            " / ".join(", ".join(storages) for storages in v["versions"]),
            ", ".join(f"{storage} ends at {end}" for storage, end in v["behind"].items()),
            "; ".join(f"{storage}: {problem}" for storage, problem in v["problems"].items()),
        )
        for v in value
    ]
    columns = ("partition", "compared to", "differs at", "storages that agree", "behind", "problem")
    return Shown(value, (Rows("Replicas", columns, cells),))


def _value(partition: int, compared: Compared) -> dict[str, Any]:
    found = compared.difference
    return {
        "partition": partition,
        "compared_to": compared.last_id,
        "first_difference": None if found is None else found.transaction_id,
        "versions": [] if found is None else [sorted(version) for version in found.versions],
        "behind": dict(compared.ends),
        "problems": dict(compared.problems),
    }


async def _compare(cluster: Cluster, where: Target, partition: int) -> Compared:
    with progress_towards(f"partition {partition}") as advance:
        try:
            return await compare_replicas(
                cluster,
                where.tls,
                partition,
                on_compared=lambda at, last: advance(at + 1, last + 1),
            )
        except UnknownPartition as problem:
            raise Failed(str(problem)) from problem


def _carry_out(where: Target, order: Order, patience: float, *, dry_run: bool) -> None:
    async def work() -> int:
        async with opened(where) as found:
            with progress_towards("copied") as advance:
                operator = ReplicaOperator(
                    found, where.tls, on_copied=lambda at, last: advance(at + 1, last + 1)
                )
                try:
                    return await carry_out(order, operator, patience_seconds=patience, on_step=tell)
                except (NotPossible, Stalled) as problem:
                    raise Failed(str(problem)) from problem

    async def look() -> None:
        async with opened(where) as found:
            observed = await ReplicaOperator(found, where.tls).observe(order.scope)
            foretell(order.next_step(observed))

    if dry_run:
        run(look())
    else:
        say("done" if run(work(), seconds=None) else "nothing was left to do")
