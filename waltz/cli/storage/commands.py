"""``waltz storage``: list, add, remove and validate storages. Touches ZooKeeper and the network.

The other verbs are in other modules: those that change the partitions of a storage in `partitions`
and `unassign`, those that copy or compare replicas in `replicas` and `single_replica`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from waltz.admin import Deregistration, Registration, check_ports
from waltz.cli.admin_access import STORAGE_ANSWER_SECONDS, open_admin
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import DryRun, Storage, examples
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import Rendering
from waltz.cli.running import Failed, network_of, open_cluster, run, tls_of
from waltz.cli.storage import partitions as storage_partitions
from waltz.cli.storage import replicas as storage_replicas
from waltz.cli.storage import rows as storage_rows
from waltz.cli.storage import single_replica as storage_single_replica
from waltz.cli.storage import unassign as storage_unassign
from waltz.cli.storage.orders import Steps, perform_directly
from waltz.cli.storage.rows import Holdings
from waltz.cli.suggested import suggested
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import ChangeRefused, StorageMaps
from waltz.net import ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig

app = typer.Typer(
    no_args_is_help=True,
    help="List, add and remove storages; assign, move, recover and compare replicas.",
)
app.add_typer(storage_partitions.app)
app.add_typer(storage_unassign.app)
app.add_typer(storage_single_replica.app)
app.add_typer(storage_replicas.app)


@app.command(
    "list",
    cls=ClusterCommand,
    epilog=examples("waltz storage list", "waltz storage list storage-3:55280 -o json"),
)
@prints(storage_rows.ListedStorage, ResultForm.LIST)
def list_command(
    context: typer.Context,
    storages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST:PORT]...", help="Show only these storages. Default: all."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show every storage: what ZooKeeper assigns to it, and what it holds."""
    where = target(context)

    async def read() -> Rendering:
        async with open_cluster(where) as cluster:
            maps = await cluster.storage_maps()
            registered = sorted({*maps.groups.groups, *maps.connections.admin_ports})
            if unknown := sorted(set(storages or ()) - set(registered)):
                raise ChangeRefused(
                    f"Storage {unknown[0]} is not in the cluster; its storages are: "
                    f"{', '.join(registered) or 'none'}."
                )
            queried = [storage for storage in registered if not storages or storage in storages]
            tls, network = await tls_of(where, cluster), network_of(where, cluster)
            holdings = await asyncio.gather(
                *(_query_holdings(cluster, maps, storage, tls, network) for storage in queried)
            )
        return storage_rows.render_storages(maps, dict(zip(queried, holdings, strict=True)))

    show(output, run(read()))


@app.command(
    "add",
    cls=ClusterCommand,
    epilog=examples("waltz storage add storage-3:55280 --admin-port 55281 --group 2"),
)
@prints(Change)
def add_command(
    context: typer.Context,
    storage: Storage,
    admin_port: Annotated[
        int,
        typer.Option("--admin-port", "-a", min=1, max=65535, help="The storage's admin port."),
    ],
    group: Annotated[
        int,
        typer.Option(
            "--group",
            "-g",
            min=0,
            max=(1 << 31) - 1,
            help="The storage's group. Each group holds one copy of every partition.",
        ),
    ],
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Add a storage to the cluster, without partitions."""
    where = target(context)

    async def add() -> Steps:
        async with open_cluster(where) as cluster:
            order = Registration(storage, group, admin_port)
            return await perform_directly(
                cluster, where, order, step_seconds=STORAGE_ANSWER_SECONDS, dry_run=dry_run
            )

    added = change("storage add", storage, run(add()), dry_run=dry_run)
    if dry_run:
        sentence = f"storage {storage} would be in group {group}"
    else:
        assign = suggested(f"waltz storage assign {storage} RANGES")
        sentence = f"storage {storage} is in group {group}; assign partitions with: {assign}"
    show_change(output, added, sentence)


@app.command(
    "remove",
    cls=ClusterCommand,
    epilog=examples("waltz storage remove storage-3:55280"),
)
@prints(Change)
def remove_command(
    context: typer.Context,
    storage: Storage,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Remove a storage without partitions from the cluster."""
    where = target(context)

    async def remove() -> Steps:
        async with open_cluster(where) as cluster:
            order = Deregistration(storage)
            return await perform_directly(
                cluster, where, order, step_seconds=STORAGE_ANSWER_SECONDS, dry_run=dry_run
            )

    removed = change("storage remove", storage, run(remove()), dry_run=dry_run)
    verb = "would be" if dry_run else "is"
    show_change(output, removed, f"storage {storage} {verb} no longer in the cluster")


@app.command(
    "validate",
    cls=ClusterCommand,
    epilog=examples("waltz storage validate", "waltz storage validate -o json"),
)
@prints(storage_rows.PortState, ResultForm.LIST)
def validate_command(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Connect to both ports of every storage. The exit status is 1 if a port does not answer."""
    where = target(context)

    async def check() -> Rendering:
        async with open_cluster(where) as cluster:
            maps, params = await cluster.storage_maps(), await cluster.store_params()
            tls = await tls_of(where, cluster)
            ports = await check_ports(
                maps,
                tls,
                params,
                timeout_seconds=STORAGE_ANSWER_SECONDS,
                network=network_of(where, cluster),
            )
        return storage_rows.render_ports(ports)

    rendering = run(check())
    show(output, rendering)
    if any(state["storage_problem"] or state["admin_problem"] for state in rendering.value):
        raise typer.Exit(1)


async def _query_holdings(
    cluster: Cluster, maps: StorageMaps, storage: str, tls: TlsConfig, network: Network
) -> Holdings:
    """Return the storage's report on its replicas, or why the storage did not report."""
    try:
        async with (
            asyncio.timeout(STORAGE_ANSWER_SECONDS),
            await open_admin(cluster, maps, storage, tls, network=network) as admin,
        ):
            return Holdings(await admin.states(), damaged=await admin.damaged_ranges())
    except TimeoutError:
        return Holdings(problem=f"no answer within {STORAGE_ANSWER_SECONDS:g} s")
    except (DialFailed, ConnectionLost, RemoteFailure, ChangeRefused, Failed) as problem:
        return Holdings(problem=str(problem))
