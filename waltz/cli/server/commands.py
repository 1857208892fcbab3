"""``waltz server``: list servers, and change which partitions they prefer.

Touches ZooKeeper and the network. A partition is assigned to a server that prefers it, if there is
one.
"""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.admin import ServerQuery, query_servers
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.local_names import local_names
from waltz.cli.options import DryRun, Partitions, examples, parse_argument
from waltz.cli.output import Format, Output, OutputFormat, show
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
from waltz.cli.server import rows as server_rows
from waltz.metadata.core.membership_steps import Membership
from waltz.net import split_address
from waltz.protocol.notation import format_partitions, parse_partitions

app = typer.Typer(no_args_is_help=True, help="List servers, and set their preferred partitions.")

Server = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="The server, with the port that clients use.")
]


@app.command(
    "list",
    cls=ClusterCommand,
    epilog=examples("waltz server list", "waltz server list -o json"),
)
@prints(server_rows.ListedServer, ResultForm.LIST)
def list_command(
    context: typer.Context,
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST:PORT]...", help="Show only these servers. Default: all."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each server has to answer.")
    ] = 10.0,
    output: Output = Format.TABLE,
) -> None:
    """Show every server, its partitions, and the storages of these partitions."""
    where = target(context)

    async def query() -> Rendering:
        async with open_cluster(where) as cluster:
            membership = await cluster.membership()
            replicas = (await cluster.replica_assignments()).value
            for address in servers or ():
                _check_member(membership, address)
            members = {
                server_id: member
                for server_id, member in membership.servers().items()
                if not servers or member.address in servers
            }
            reports = await query_servers(
                members.values(),
                await tls_of(where, cluster),
                timeout_seconds=timeout,
                network=network_of(where, cluster),
            )
        return server_rows.render_servers(members, reports, replicas, local_names(where))

    show(output, run(query(), seconds=USUAL_SECONDS + SERVER_WAITS * timeout))


@app.command(
    "prefer",
    cls=ClusterCommand,
    epilog=examples("waltz server prefer server-0:55180 0-6,7"),
)
@prints(Change)
def prefer_command(
    context: typer.Context,
    server: Server,
    partitions: Partitions,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Assign these partitions to a server until it stops; other partitions are rebalanced."""
    _set_preference(context, server, partitions, wanted=True, dry_run=dry_run, output=output)


@app.command(
    "unprefer",
    cls=ClusterCommand,
    epilog=examples("waltz server unprefer server-0:55180 0-6,7"),
)
@prints(Change)
def unprefer_command(
    context: typer.Context,
    server: Server,
    partitions: Partitions,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Remove these partitions from the server's preferred partitions."""
    _set_preference(context, server, partitions, wanted=False, dry_run=dry_run, output=output)


def _set_preference(
    context: typer.Context,
    server: str,
    partitions: str,
    *,
    wanted: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """If ``wanted``, make a server prefer ``partitions``; otherwise end its preference for them.

    A dry run only checks that the server runs and the partitions exist.
    """
    where, chosen = target(context), parse_argument(parse_partitions, partitions)
    last_chosen = chosen[-1]  # They are in ascending order.
    shown = format_partitions(chosen)

    async def set_preference() -> None:
        async with open_cluster(where) as cluster:
            _check_member(await cluster.membership(), server)
            last_partition = (await cluster.params()).num_partitions - 1
            if last_chosen > last_partition:
                raise Failed(
                    f"there is no partition {last_chosen}: the cluster has 0 to {last_partition}"
                )
            if dry_run:
                return
            tls, network = await tls_of(where, cluster), network_of(where, cluster)
            async with await ServerQuery.open(split_address(server), tls, network=network) as query:
                if not await query.prefer(chosen, wanted=wanted):
                    raise Failed(
                        f"server {server} refused to change its preference for partitions {shown}; "
                        "if the cluster has access rules, this needs the right administer: see "
                        "waltz access list"
                    )

    run(set_preference())
    if wanted:
        verb = "prefer"
        predicate = "would prefer" if dry_run else "prefers"
    else:
        verb = "unprefer"
        predicate = "would no longer prefer" if dry_run else "no longer prefers"
    steps = [f"server {server}: {verb} partitions {shown}"]
    changed = change(f"server {verb}", server, steps, partitions=chosen, dry_run=dry_run)
    show_change(output, changed, f"server {server} {predicate} partitions {shown}")


def _check_member(membership: Membership, address: str) -> None:
    """Raise Failed if no running server has ``address``."""
    running = [member.address for member in membership.servers().values()]
    if address not in running:
        raise Failed(
            f"server {address} is not running; running servers: {', '.join(running) or 'none'}"
        )
