"""``waltz cluster``: create, show, verify and delete a cluster. Touches ZooKeeper and the network.

The verbs for lost metadata are in `rescue` and `metadata`, the verbs for outside addresses in
`outside`.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated

import typer

from waltz.admin import Finding, inspect, query_servers, read_partitions, verify
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster import metadata as cluster_metadata
from waltz.cli.cluster import outside as cluster_outside
from waltz.cli.cluster import rescue as cluster_rescue
from waltz.cli.cluster import rows as cluster_rows
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.local_names import local_names
from waltz.cli.options import DryRun, Yes, confirm, examples
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import Rendering
from waltz.cli.running import (
    SERVER_WAITS,
    USUAL_SECONDS,
    Failed,
    network_of,
    open_cluster,
    run,
    tls_of,
)
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.protocol.notation import MOST_PARTITIONS

app = typer.Typer(
    no_args_is_help=True, help="Create, show, verify, back up, rescue and delete clusters."
)
app.add_typer(cluster_rescue.app)
app.add_typer(cluster_metadata.app, name="metadata")
app.add_typer(cluster_outside.app, name="outside")

_CHECK_AGAIN_SECONDS = 0.5
"""The pause between two repetitions of the checks of ``waltz cluster verify``."""

Timeout = Annotated[
    float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
]


@app.command(
    "create",
    cls=ClusterCommand,
    epilog=examples("waltz cluster create orders --partitions 8 -z zk-1:2181 -r /waltz/orders"),
)
@prints(cluster_rows.CreatedCluster)
def create_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the cluster.")],
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=MOST_PARTITIONS,
            help="The number of partitions, which cannot change later.",
        ),
    ],
    key: Annotated[
        uuid.UUID | None,
        typer.Option(
            "--key",
            "-k",
            metavar="UUID",
            help="The key in the files of storages that exist already. Default: a new key.",
        ),
    ] = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Create a new cluster in ZooKeeper, without storages.

    Add storages with waltz storage add, then start servers. With --key, the storages have
    transactions: run waltz cluster rescue before you start servers.
    """
    where, cluster_key = target(context), key or uuid.uuid4()
    if not name.strip():
        raise typer.BadParameter("the name of the cluster is empty: waltz cluster delete needs it")

    async def create() -> None:
        async with open_cluster(where) as cluster:
            if dry_run:
                if await cluster.store.get(where.root) is not None:
                    raise Failed(f"the znode {where.root} exists already; choose another root")
                return
            await create_cluster(cluster.store, where.root, name, partitions, key=cluster_key)

    run(create())
    # A dry run shows no key: if the key is generated, the real run will generate another one.
    created_key = None if dry_run else cluster_key
    show(output, cluster_rows.render_created(name, where.root, created_key, partitions))


@app.command(
    "delete",
    cls=ClusterCommand,
    epilog=examples("waltz cluster delete orders -z zk-1:2181 -r /waltz/orders"),
)
@prints(Change)
def delete_command(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the cluster, as a confirmation."),
    ],
    ignore_servers: Annotated[
        bool,
        typer.Option(
            "--ignore-servers",
            help="Delete the cluster although servers are registered. Use it if they are dead.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete a cluster from ZooKeeper: its membership, assignments and partition metadata.

    NAME must be the name of the cluster. The files of storages stay, but no other cluster accepts
    them. After an interruption, the same command continues.
    """
    where = target(context)

    async def delete() -> None:
        async with open_cluster(where) as cluster:
            running = [] if ignore_servers else await _registered_servers(cluster)
            if running:
                raise Failed(
                    f"servers {', '.join(running)} of the cluster are running; stop them first, or "
                    "add --ignore-servers if they are dead"
                )
            await delete_cluster(cluster.store, where.root, name, dry_run=dry_run)

    if not dry_run:
        confirm(
            f"{where.root} and everything below it will be deleted from {where.zookeeper}", yes=yes
        )
    run(delete())
    steps = [f"delete {where.root} and everything below it from {where.zookeeper}"]
    deleted = change("cluster delete", where.root, steps, dry_run=dry_run)
    show_change(output, deleted, f"{where.root} {'would be' if dry_run else 'is'} deleted")


@app.command(
    "key",
    cls=ClusterCommand,
    epilog=examples("waltz cluster key", "waltz cluster key -o json"),
)
@prints(cluster_rows.ClusterKey)
def key_command(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show the key that identifies the cluster in its files and on its connections."""
    where = target(context)

    async def read() -> uuid.UUID:
        async with open_cluster(where) as cluster:
            return (await cluster.store_params()).key

    show(output, cluster_rows.render_key(run(read())))


@app.command(
    "show",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster show",
        "waltz cluster show -z zk-1:2181 -r /waltz/orders",
        "waltz cluster show -o json | jq '.partitions[0].server'",
        "waltz cluster show -o template='{partitions.partition} {partitions.server}'",
    ),
)
@prints(cluster_rows.ClusterState)
def show_command(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show the contents of ZooKeeper: servers, storages, partitions and their replicas."""
    where = target(context)

    async def read() -> Rendering:
        async with open_cluster(where) as cluster:
            params = await cluster.params()
            return cluster_rows.render_cluster(
                where.root,
                params,
                await cluster.store_params(),
                await cluster.membership(),
                await cluster.storage_maps(),
                await read_partitions(cluster, params.num_partitions),
            )

    show(output, run(read()))


@app.command(
    "verify",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster verify",
        "waltz cluster verify --wait 60",
        "waltz cluster verify --partition 3 --timeout 5",
        "waltz cluster verify -o json | jq '.findings[] | select(.passed | not)'",
    ),
)
@prints(cluster_rows.Verification)
def verify_command(
    context: typer.Context,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Check only this partition.")
    ] = None,
    timeout: Timeout = 10.0,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            "-w",
            min=0.0,
            help="Seconds to repeat the checks until all pass.",
        ),
    ] = 0.0,
    output: Output = Format.TABLE,
) -> None:
    """Check that ZooKeeper, servers and storages agree and that every replica has recovered.

    While a partition moves to another server, or recovers, its checks fail: repeat them with
    --wait. The exit status is 1 if a check of the last repetition fails.
    """
    where = target(context)

    # The servers that any repetition has found, by id. The last one may find fewer, but its
    # findings may still name a server that has ended since an earlier one.
    members: dict[int, ServerDescriptor] = {}

    async def check_until_passed() -> list[Finding]:
        deadline = asyncio.get_running_loop().time() + wait
        async with open_cluster(where) as cluster:
            while True:
                findings = await check_once(cluster)
                remaining = deadline - asyncio.get_running_loop().time()
                if remaining <= 0 or all(finding.problem is None for finding in findings):
                    return findings
                await asyncio.sleep(min(remaining, _CHECK_AGAIN_SECONDS))

    async def check_once(cluster: Cluster) -> list[Finding]:
        tls, network = await tls_of(where, cluster), network_of(where, cluster)
        state = await inspect(cluster, tls, timeout_seconds=timeout, network=network)
        members.update(state.members)
        if partition is not None and not 0 <= partition < state.num_partitions:
            raise Failed(
                f"there is no partition {partition}; the cluster has partitions 0 to "
                f"{state.num_partitions - 1}"
            )
        return verify(state, partition)

    # The last repetition may begin when ``wait`` is almost over, and takes its own time after that.
    limit_seconds = USUAL_SECONDS + wait + SERVER_WAITS * timeout
    findings = run(check_until_passed(), seconds=limit_seconds)
    rendering = cluster_rows.render_checks(findings)
    show(output, local_names(where).name_processes(rendering, members))
    if any(finding.problem is not None for finding in findings):
        raise typer.Exit(1)


@app.command(
    "check-connectivity",
    cls=ClusterCommand,
    epilog=examples("waltz cluster check-connectivity", "waltz cluster check-connectivity -t 3"),
)
@prints(cluster_rows.StorageReached, ResultForm.LIST)
def check_connectivity_command(
    context: typer.Context, timeout: Timeout = 10.0, output: Output = Format.TABLE
) -> None:
    """Show which storages every server reaches.

    The exit status is 1 if a server does not answer, or does not reach a storage.
    """
    where = target(context)

    async def query() -> Rendering:
        async with open_cluster(where) as cluster:
            members = (await cluster.membership()).servers()
            tls, network = await tls_of(where, cluster), network_of(where, cluster)
            answers = await query_servers(
                members.values(), tls, timeout_seconds=timeout, network=network
            )
        return cluster_rows.render_connectivity(members, answers)

    rendering = run(query(), seconds=USUAL_SECONDS + SERVER_WAITS * timeout)
    show(output, rendering)
    if not all(entry["reached"] for entry in rendering.value):
        raise typer.Exit(1)


async def _registered_servers(cluster: Cluster) -> list[str]:
    """Return the addresses of the registered servers.

    There are none if the cluster does not exist, or if its membership cannot be decoded, as after
    an interrupted creation: such a cluster can be deleted, too.
    """
    try:
        members = (await cluster.membership()).servers()
    except (NoCluster, MalformedMetadata):
        return []
    return [member.address for member in members.values()]
