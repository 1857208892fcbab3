"""``waltz storage``: show where a single replica ends, and fill a single replica.

Touches ZooKeeper and the network. Waltz 0.13.2 has both verbs, too. The help does not list
``recover-partition``, because ``waltz storage recover`` does more: it also switches the replica off
and on.
"""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.admin import COPY_BATCH, OfflineFill, OrderExecutor, max_transaction_id
from waltz.cli.admin_access import check_held, open_admin
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, target, tls_from_option
from waltz.cli.fields import prints
from waltz.cli.options import DryRun, Partition, Storage, examples
from waltz.cli.output import Format, Output, show
from waltz.cli.progress import progress_towards
from waltz.cli.running import network_of, open_cluster, run, tls_of
from waltz.cli.storage.orders import Steps, carry_out_order, print_forecast
from waltz.cli.storage.rows import ReplicaEnd, render_replica_end
from waltz.cli.suggested import suggested

app = typer.Typer()

OtherTls = Annotated[
    str | None,
    typer.Option(metavar="on|off|FILE", help="Like --tls, but only for this storage."),
]


@app.command(
    "max-transaction-id",
    cls=ClusterCommand,
    epilog=examples("waltz storage max-transaction-id storage-3:55280 4"),
)
@prints(ReplicaEnd)
def max_transaction_id_command(
    context: typer.Context,
    storage: Storage,
    partition: Partition,
    offline: Annotated[
        bool, typer.Option("--offline", help="The partition is switched off at the storage.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the last transaction id that a replica holds, committed or not."""
    where = target(context)

    async def query_end() -> int:
        async with open_cluster(where) as cluster:
            maps, params = await cluster.storage_maps(), await cluster.store_params()
            tls, network = await tls_of(where, cluster), network_of(where, cluster)
            async with await open_admin(cluster, maps, storage, tls, network=network) as admin:
                check_held(storage, [partition], await admin.partitions())
                return await max_transaction_id(
                    admin, storage, partition, tls, params, offline=offline, network=network
                )

    show(output, render_replica_end(storage, partition, run(query_end())))


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
@prints(Change)
def recover_partition_command(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="HOST:PORT to copy from.")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="HOST:PORT to copy to.")
    ],
    partition: Partition,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", min=1, help="Number of transactions per request.")
    ] = COPY_BATCH,
    source_tls: OtherTls = None,
    destination_tls: OtherTls = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Copy a partition from another storage into a switched-off replica.

    The copy ends where the source's present store session began; servers copy the rest once the
    replica is switched on. After an interruption, repeat the command before you switch the replica
    on.
    """
    where = target(context)
    # The TLS settings of the two storages; None: as for the other storages.
    own_tls = {source: tls_from_option(source_tls), destination: tls_from_option(destination_tls)}
    order = OfflineFill(partition, source, destination)
    # The last id that the replica holds: before the copy, and after each request of the copy.
    ends: list[int] = []

    async def copy() -> tuple[Steps, int | None]:
        """Copy; return the steps, and the replica's last id afterwards (None in a dry run)."""
        async with open_cluster(where) as cluster:
            with progress_towards("copied") as advance:

                def note_copied(last_copied: int, last_to_copy: int) -> None:
                    ends.append(last_copied)
                    # Ids start at 0, so id + 1 is a number of transactions.
                    advance(last_copied + 1, last_to_copy + 1)

                executor = OrderExecutor(
                    cluster,
                    await tls_of(where, cluster),
                    retry=False,
                    tls_of={storage: tls for storage, tls in own_tls.items() if tls is not None},
                    copy_batch=batch_size,
                    on_copied=note_copied,
                    network=network_of(where, cluster),
                )
                if dry_run:
                    return await print_forecast(executor, order, waiting_fails=True), None
                # Without waiting: the command fails if one of the two storages does not answer.
                steps = await carry_out_order(executor, order, max_stall=0.0, quiet=True)
                held = (await executor.observe(order.scope)).held(destination, partition)
                assert held is not None, "the storage holds the replica that was filled"
                if held.max_transaction_id is not None:
                    return steps, held.max_transaction_id
                # Waltz 0.13.2 may not report the last id. A copy raises the low-water mark to it.
                return steps, held.low_water_mark

    steps, last_id = run(copy(), seconds=None)
    copied = change(
        "storage recover-partition", destination, steps, partitions=[partition], dry_run=dry_run
    )
    if last_id is None:  # A dry run.
        sentence = f"partition {partition} would be copied from {source} to {destination}"
        show_change(output, copied, sentence)
        return
    count = ends[-1] - ends[0] if ends else 0
    command = suggested(f"waltz storage availability {destination} {partition} on")
    sentence = f"{count} transactions copied; the replica ends at {last_id}"
    show_change(output, copied, f"{sentence}; switch it on with: {command}")
