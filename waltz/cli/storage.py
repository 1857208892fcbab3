"""``waltz storage``: which storages there are and what they hold. ZooKeeper and the network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

from waltz.cli import rows
from waltz.cli.options import (
    ClusterFile,
    Root,
    Target,
    Tls,
    ZooKeeper,
    examples,
    parsed,
    target,
)
from waltz.cli.output import Format, Output, say, show
from waltz.cli.rows import Shown
from waltz.cli.running import Failed, opened, run
from waltz.metadata.admin import Refused, StorageMaps
from waltz.metadata.cluster import Cluster
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, TlsConfig
from waltz.operations import StorageAdmin, SyncStep, sync_storage
from waltz.ranges import format_partitions, parse_partitions

app = typer.Typer(no_args_is_help=True, help="Say which storages there are and what they hold.")

_ANSWER_SECONDS = 10.0

Storage = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="The storage, by the port that servers use.")
]


@app.command("list", epilog=examples("waltz storage list", "waltz storage list -o json"))
def list_command(
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Show every storage: what ZooKeeper gives it, and what it says of what it holds."""
    where = target(zookeeper, root, cluster, tls)

    async def read() -> Shown:
        async with opened(where) as found:
            maps = await found.storage_maps()
            names = sorted({*maps.groups.groups, *maps.connections.admin_ports})
            answers = await asyncio.gather(*(_holdings(found, maps, s, where.tls) for s in names))
        return rows.storages(maps, dict(zip(names, answers, strict=True)))

    show(output, run(read()))


@app.command(
    "add",
    epilog=examples("waltz storage add storage-3:55280 --admin-port 55281 --group 2"),
)
def add_command(
    storage: Storage,
    admin_port: Annotated[
        int, typer.Option("--admin-port", "-a", min=1, max=65535, help="Its other port.")
    ],
    group: Annotated[
        int,
        typer.Option("--group", "-g", min=0, help="Each group holds one copy of every partition."),
    ],
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
) -> None:
    """Make a storage known to the cluster, with no partitions yet."""
    where = target(zookeeper, root, cluster, None)

    async def add() -> None:
        async with opened(where) as found:
            await found.add_storage_node(storage, group, admin_port)

    run(add())
    say(f"storage {storage} is now in group {group}; give it partitions with: waltz storage assign")


@app.command(
    "assign",
    epilog=examples(
        "waltz storage assign storage-3:55280 0-6,7,10-16",
    ),
)
def assign_command(
    storage: Storage,
    partitions: Annotated[str, typer.Argument(metavar="RANGES", help="Such as 0-6,7,10-16.")],
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
) -> None:
    """Give a running storage a replica of each of these partitions.

    The storage makes them first, then ZooKeeper is told; servers react by filling them.
    """
    where = target(zookeeper, root, cluster, tls)
    wanted = parsed(parse_partitions, partitions)

    async def assign() -> None:
        async with opened(where) as found:
            maps = await found.storage_maps()
            async with await _open(found, maps, storage, where.tls) as admin:
                held = await admin.partitions()
                await admin.assign(p for p in wanted if p not in held)
            await found.assign_partitions(storage, wanted)

    run(assign())
    say(f"storage {storage} now has partitions {format_partitions(wanted)}")


@app.command("auto-assign", epilog=examples("waltz storage auto-assign 0"))
def auto_assign_command(
    group: Annotated[int, typer.Argument(min=0, help="A group without any partitions.")],
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Deal all partitions to the running storages of a group, round-robin."""
    where = target(zookeeper, root, cluster, tls)

    async def assign() -> dict[str, SyncStep]:
        async with opened(where) as found, AsyncExitStack() as stack:
            maps = await found.storage_maps()
            # All are reached before anything is changed.
            admins = {
                storage: await stack.enter_async_context(
                    await _open(found, maps, storage, where.tls)
                )
                for storage in maps.group_members(group)
            }
            await found.auto_assign(group)
            dealt = (await found.replica_assignments()).value.partitions
            return {s: await sync_storage(admin, dealt[s]) for s, admin in admins.items()}

    show(output, _synced(run(assign())))


@app.command("sync", epilog=examples("waltz storage sync", "waltz storage sync storage-3:55280"))
def sync_command(
    storages: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST:PORT]...", help="Without any: all.")
    ] = None,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Make storages hold exactly the partitions that ZooKeeper gives them.

    This is what a storage needs whose disk was replaced. Files of partitions that a storage gives
    up stay on its disk.
    """
    where = target(zookeeper, root, cluster, tls)
    steps, failures = run(_sync_all(where, storages))
    show(output, _synced(steps))
    for failure in failures:
        say(f"waltz: {failure}")
    if failures:
        raise typer.Exit(1)


async def _sync_all(
    where: Target, storages: Iterable[str] | None
) -> tuple[dict[str, SyncStep], list[str]]:
    """Return what was changed per storage, and what went wrong with the others."""
    steps: dict[str, SyncStep] = {}
    failures: list[str] = []
    async with opened(where) as found:
        maps = await found.storage_maps()
        for storage in storages or sorted(maps.assignments.partitions):
            try:
                async with await _open(found, maps, storage, where.tls) as admin:
                    wanted = maps.assignments.partitions.get(storage, ())
                    steps[storage] = await sync_storage(admin, wanted)
            except (DialFailed, ConnectionLost, RemoteFailure, Failed) as problem:
                failures.append(f"storage {storage}: {problem}")
    return steps, failures


async def _open(cluster: Cluster, maps: StorageMaps, storage: str, tls: TlsConfig) -> StorageAdmin:
    port = maps.connections.admin_ports.get(storage)
    if port is None:
        known = ", ".join(sorted(maps.connections.admin_ports)) or "none"
        raise Refused(f"Storage {storage} is not in the cluster. Storages there are: {known}.")
    async with asyncio.timeout(_ANSWER_SECONDS):
        return await StorageAdmin.open(storage, port, tls, await cluster.store_params())


async def _holdings(
    cluster: Cluster, maps: StorageMaps, storage: str, tls: TlsConfig
) -> Mapping[str, Any]:
    """Return what `rows.storages` wants of one storage."""
    try:
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            await _open(cluster, maps, storage, tls) as admin,
        ):
            gauges = (await admin.metrics()).get("gauges", {})
            held: list[dict[str, Any]] = []
            for partition, available in sorted((await admin.partitions()).items()):
                info = await admin.session_info(partition)
                session = info.last_session_id, info.low_water_mark, info.local_low_water_mark
                gauge = gauges.get(f"waltz-storage.partition-{partition}.max-transaction-id", {})
                held.append(rows.held_partition(partition, available, session, gauge.get("value")))
    except TimeoutError:
        return {"partitions": [], "problem": f"no answer within {_ANSWER_SECONDS:g} s"}
    except (DialFailed, ConnectionLost, RemoteFailure, Refused) as problem:
        return {"partitions": [], "problem": str(problem)}
    return {"partitions": held, "problem": None}


def _synced(steps: Mapping[str, SyncStep]) -> Shown:
    return rows.synced({s: (step.assigned, step.unassigned) for s, step in steps.items()})
