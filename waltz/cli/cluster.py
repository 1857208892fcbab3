"""``waltz cluster``: make a cluster, look at it, check it. Touches ZooKeeper and the network."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from waltz.cli import rows
from waltz.cli.options import ClusterFile, Root, Tls, ZooKeeper, examples, target
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import Shown
from waltz.cli.running import Failed, opened, run
from waltz.metadata.lifecycle import create_cluster
from waltz.operations import Finding, inspect, read_partitions, verify

app = typer.Typer(no_args_is_help=True, help="Make a cluster, look at it, check it.")


@app.command(
    "create",
    epilog=examples("waltz cluster create orders --partitions 8 -z zk1:2181 -r /waltz/orders"),
)
def create_command(
    name: Annotated[str, typer.Argument(help="What the cluster is called.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="How many logs it has, for ever.")
    ],
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Create a new cluster in ZooKeeper; storages and servers come afterwards."""
    where, key = target(zookeeper, root, cluster, None), uuid.uuid4()

    async def create() -> None:
        async with opened(where) as found:
            await create_cluster(found.store, where.root, name, partitions, key=key)

    run(create())
    show(output, rows.created(name, where.root, key, partitions))


@app.command(
    "show",
    epilog=examples(
        "waltz cluster show",
        "waltz cluster show -z zk1:2181 -r /waltz/orders",
        "waltz cluster show -o json | jq '.partitions[0].server'",
    ),
)
def show_command(
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what ZooKeeper says: servers, storages, partitions and their replicas."""
    where = target(zookeeper, root, cluster, None)

    async def read() -> Shown:
        async with opened(where) as found:
            params = await found.params()
            return rows.cluster(
                where.root,
                params,
                await found.store_params(),
                await found.view(),
                await found.storage_maps(),
                await read_partitions(found, params.num_partitions),
            )

    show(output, run(read()))


@app.command(
    "verify",
    epilog=examples(
        "waltz cluster verify",
        "waltz cluster verify --partition 3 --timeout 5",
        "waltz cluster verify -o json | jq '.findings[] | select(.passed | not)'",
    ),
)
def verify_command(
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Check this one only.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
    ] = 10.0,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Check that ZooKeeper, servers and storages agree and that every replica has recovered.

    The exit status is 1 if any check of any partition fails.
    """
    where = target(zookeeper, root, cluster, tls)

    async def check() -> list[Finding]:
        async with opened(where) as found:
            state = await inspect(found, where.tls, timeout_seconds=timeout)
        if partition is not None and not 0 <= partition < state.num_partitions:
            raise Failed(
                f"there is no partition {partition}; the cluster has partitions 0 to "
                f"{state.num_partitions - 1}"
            )
        return verify(state, partition)

    findings = run(check())
    show(output, rows.verified(findings))
    if any(finding.problem is not None for finding in findings):
        raise typer.Exit(1)
