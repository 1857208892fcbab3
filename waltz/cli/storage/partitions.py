"""``waltz storage``: which partitions storages hold, and their switches. ZooKeeper, the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from waltz.admin import (
    StorageAdmin,
    SyncStep,
    Told,
    sync_storage,
)
from waltz.cli.admin_access import check_held, given_time, open_admin
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.options import DryRun, OnOff, Partitions, Storage, examples, parsed
from waltz.cli.output import Format, Output, say, show
from waltz.cli.rows import Shown
from waltz.cli.running import Failed, opened, run
from waltz.cli.storage.replica_steps import Only
from waltz.cli.storage.rows import synced
from waltz.client.core.ranges import format_partitions, parse_partitions
from waltz.metadata.core import storage_maps as changes
from waltz.net import ConnectionLost, DialFailed, RemoteFailure
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.admin import Switch

app = typer.Typer()

Patience = Annotated[
    float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each storage has to do it.")
]
_PATIENCE_SECONDS = 60.0
_SYNC_GOES_ON = "When it has done it, make sure of the rest: waltz storage sync"
_AGAIN = "The same command goes on"


@app.command(
    "assign",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage assign storage-3:55280 0-6,7",
        "waltz storage assign storage-3:55280 4 --only storage",
    ),
)
def assign_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    only: Only = None,
    timeout: Patience = _PATIENCE_SECONDS,
    dry_run: DryRun = False,
) -> None:
    """Give a running storage a replica of each of these partitions.

    The storage makes them first, then ZooKeeper is told; servers react by filling them. In between
    they can be filled offline: see waltz storage recover.
    """
    where, wanted = target(context), parsed(parse_partitions, partitions)

    async def assign() -> None:
        async with opened(where) as found:
            maps = await found.storage_maps()
            if only is not Told.STORAGE:
                count = (await found.params()).num_partitions
                changes.assign_partitions(maps, storage, wanted, count)
            if only is not Told.ZOOKEEPER:
                async with await open_admin(found, maps, storage, where.tls) as admin:
                    held = await admin.partitions()
                    missing = [p for p in wanted if p not in held]
                    if missing and not dry_run:
                        async with given_time(storage, timeout, _AGAIN):
                            await admin.assign(missing)
            if only is not Told.STORAGE and not dry_run:
                await found.assign_partitions(storage, wanted)

    run(assign(), seconds=None)
    has = "would have" if dry_run else "now has"
    say(f"storage {storage} {has} partitions {format_partitions(wanted)}")


@app.command(
    "auto-assign", cls=ClusterCommand, epilog=examples("waltz storage auto-assign 0 --dry-run")
)
def auto_assign_command(
    context: typer.Context,
    group: Annotated[
        int, typer.Argument(metavar="GROUP", min=0, help="A group without any partitions.")
    ],
    timeout: Patience = _PATIENCE_SECONDS,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Deal all partitions to the running storages of a group, round-robin."""
    where = target(context)

    async def assign() -> Mapping[str, SyncStep]:
        async with opened(where) as found, AsyncExitStack() as stack:
            maps, count = await found.storage_maps(), (await found.params()).num_partitions
            dealt = changes.auto_assign(maps, group, count).assignments.partitions
            # All are reached before anything is changed.
            admins = {
                storage: await stack.enter_async_context(
                    await open_admin(found, maps, storage, where.tls)
                )
                for storage in maps.group_members(group)
            }
            if dry_run:
                return {storage: SyncStep(dealt[storage], ()) for storage in admins}
            await found.auto_assign(group)
            dealt = (await found.replica_assignments()).value.partitions
            steps = {}
            for storage, admin in admins.items():
                async with given_time(
                    storage, timeout, f"ZooKeeper has been told. {_SYNC_GOES_ON}"
                ):
                    steps[storage] = await sync_storage(admin, dealt[storage])
            return steps

    show(output, _synced(run(assign(), seconds=None)))


@app.command(
    "sync",
    cls=ClusterCommand,
    epilog=examples("waltz storage sync --dry-run", "waltz storage sync storage-3:55280"),
)
def sync_command(
    context: typer.Context,
    storages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST:PORT]...", help="Which storages. Without any: all."),
    ] = None,
    timeout: Patience = _PATIENCE_SECONDS,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Make storages hold exactly the partitions that ZooKeeper gives them.

    This is what a storage needs whose disk was replaced. Files of partitions that a storage gives
    up stay on its disk.
    """
    work = _sync_all(target(context), storages, timeout, dry_run=dry_run)
    steps, failures = run(work, seconds=None)
    show(output, _synced(steps))
    for failure in failures:
        say(f"waltz: {failure}")
    if failures:
        raise typer.Exit(1)


@app.command(
    "availability",
    hidden=True,
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage availability storage-3:55280 0-6 off",
        "waltz storage availability storage-3:55280 0-6 on",
    ),
)
def availability_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    state: Annotated[OnOff, typer.Argument(metavar="on|off", help="Whether servers may use them.")],
    dry_run: DryRun = False,
) -> None:
    """Switch reading and writing of partitions at one storage on or off, both at once.

    A replica that is switched off can be filled from another with: waltz storage recover-partition
    """
    where, wanted = target(context), parsed(parse_partitions, partitions)

    async def switch(admin: StorageAdmin) -> None:
        await admin.set_available(wanted, available=state is OnOff.ON)

    run(_switched(where, storage, wanted, None if dry_run else switch), seconds=None)
    verb = "would be switched" if dry_run else "are switched"
    say(f"partitions {format_partitions(wanted)} at {storage} {verb} {state.value}")


@app.command(
    "switch",
    cls=ClusterCommand,
    epilog=examples(
        "waltz storage switch storage-3:55280 0-6 --write off",
        "waltz storage switch storage-3:55280 0-6 --read on --write on",
    ),
)
def switch_command(
    context: typer.Context,
    storage: Storage,
    partitions: Partitions,
    read: Annotated[OnOff | None, typer.Option(help="Whether servers may read them.")] = None,
    write: Annotated[OnOff | None, typer.Option(help="Whether servers may write them.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Switch reading or writing of partitions at one storage on or off, each by itself.

    Storages of Waltz 0.13.2 have one switch for both: see waltz storage availability.
    """
    where, wanted = target(context), parsed(parse_partitions, partitions)
    orders = {Switch.READ: read, Switch.WRITE: write}
    given = {switch: state is OnOff.ON for switch, state in orders.items() if state is not None}
    if not given:
        raise typer.BadParameter("say which: --read on|off, --write on|off, or both")

    async def switch(admin: StorageAdmin) -> None:
        await _switch_each(admin, storage, wanted, given)

    run(_switched(where, storage, wanted, None if dry_run else switch), seconds=None)
    done = ", ".join(f"{each.name.lower()} {'on' if on else 'off'}" for each, on in given.items())
    verb = "would be switched" if dry_run else "are switched"
    say(f"partitions {format_partitions(wanted)} at {storage} {verb}: {done}")


async def _switched(
    where: Target,
    storage: str,
    partitions: tuple[int, ...],
    switch: Callable[[StorageAdmin], Awaitable[None]] | None,
) -> None:
    """Do ``switch`` at a storage that holds the partitions; None: only see that it does."""
    async with opened(where) as found:
        maps = await found.storage_maps()
        async with await open_admin(found, maps, storage, where.tls) as admin:
            check_held(storage, partitions, await admin.partitions())
            if switch is not None:
                async with given_time(storage, _PATIENCE_SECONDS, _AGAIN):
                    await switch(admin)


async def _switch_each(
    admin: StorageAdmin, storage: str, partitions: tuple[int, ...], orders: Mapping[Switch, bool]
) -> None:
    try:
        for which, on in orders.items():
            await admin.switch(partitions, which, on=on)
    except UnsupportedByPeer:
        raise Failed(
            f"storage {storage} has one switch for both, as Waltz 0.13.2 has; upgrade it, or use: "
            "waltz storage availability"
        ) from None


async def _sync_all(
    where: Target, storages: Iterable[str] | None, patience_seconds: float, *, dry_run: bool
) -> tuple[dict[str, SyncStep], list[str]]:
    """Return what was changed per storage, and what went wrong with the others."""
    steps: dict[str, SyncStep] = {}
    failures: list[str] = []
    async with opened(where) as found:
        maps = await found.storage_maps()
        for storage in storages or sorted(maps.assignments.partitions):
            try:
                async with await open_admin(found, maps, storage, where.tls) as admin:
                    wanted = maps.assignments.partitions.get(storage, ())
                    async with given_time(storage, patience_seconds, _SYNC_GOES_ON):
                        steps[storage] = await sync_storage(admin, wanted, dry_run=dry_run)
            except (DialFailed, ConnectionLost, RemoteFailure, changes.ChangeRefused) as problem:
                failures.append(f"storage {storage}: {problem}")
            except Failed as problem:
                failures.append(str(problem))
            except TimeoutError:
                failures.append(f"storage {storage} does not answer")
    return steps, failures


def _synced(steps: Mapping[str, SyncStep]) -> Shown:
    return synced({s: (step.assigned, step.unassigned) for s, step in steps.items()})
