"""``waltz storage``: single replicas, asked and filled. Touches ZooKeeper and the network."""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.admin import (
    Copied,
    check_offline,
    copy_offline,
    max_transaction_id,
    storage_address,
)
from waltz.cli.admin_access import check_held, open_admin
from waltz.cli.cluster_options import ClusterCommand, target, tls_named
from waltz.cli.options import DryRun, Partition, Storage, examples
from waltz.cli.output import Format, Output, say, show
from waltz.cli.progress import progress_towards
from waltz.cli.running import opened, run
from waltz.cli.storage.rows import max_id
from waltz.net import RpcConnection

app = typer.Typer()

OtherTls = Annotated[
    str | None, typer.Option(metavar="on|off|FILE", help="Like --tls, for this storage.")
]


@app.command(
    "max-transaction-id",
    cls=ClusterCommand,
    epilog=examples("waltz storage max-transaction-id storage-3:55280 4"),
)
def max_transaction_id_command(
    context: typer.Context,
    storage: Storage,
    partition: Partition,
    offline: Annotated[
        bool, typer.Option("--offline", help="The partition is switched off there.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the last transaction id that a replica holds, committed or not."""
    where = target(context)

    async def ask() -> int:
        async with opened(where) as found:
            maps, params = await found.storage_maps(), await found.store_params()
            async with await open_admin(found, maps, storage, where.tls) as admin:
                check_held(storage, [partition], await admin.partitions())
                return await max_transaction_id(
                    admin, storage, partition, where.tls, params, offline=offline
                )

    show(output, max_id(storage, partition, run(ask())))


@app.command(
    "recover-partition",
    hidden=True,
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage availability storage-3:55280 4 off",
        "waltz storage recover-partition storage-1:55280 storage-3:55280 4",
        "waltz storage availability storage-3:55280 4 on",
    ),
)
def recover_partition_command(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="HOST:PORT to copy from.")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="HOST:PORT to copy to.")
    ],
    partition: Partition,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", min=1, help="Transactions of one request.")
    ] = 1000,
    source_tls: OtherTls = None,
    destination_tls: OtherTls = None,
    dry_run: DryRun = False,
) -> None:
    """Fill a replica that is switched off from another storage.

    It is copied up to where the source's present store session began; servers copy the rest once
    the replica is switched on. Broken off, it must be done again before that.
    """
    where = target(context)
    from_tls = tls_named(source_tls, default=where.tls)
    to_tls = tls_named(destination_tls, default=where.tls)

    async def copy() -> Copied | None:
        async with opened(where) as found:
            maps, params = await found.storage_maps(), await found.store_params()
            async with (
                await open_admin(found, maps, source, from_tls) as giver,
                await open_admin(found, maps, destination, to_tls) as taker,
            ):
                await check_offline(taker, partition)
                if dry_run:
                    return None
                cluster = params.key, params.num_partitions
                address = storage_address(destination)
                port = await RpcConnection.open_storage(address, to_tls, cluster)
                try:
                    with progress_towards("copied") as tell:
                        return await copy_offline(
                            giver, taker, port, partition, batch_size=batch_size, progress=tell
                        )
                finally:
                    port.close()

    copied = run(copy(), seconds=None)
    if copied is None:
        say(f"partition {partition} would be copied from {source} to {destination}")
        return
    say(
        f"{copied.count} transactions copied, and the replica goes up to {copied.last_id}; switch "
        f"it on with: waltz storage availability {destination} {partition} on"
    )
