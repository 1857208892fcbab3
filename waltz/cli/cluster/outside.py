"""``waltz cluster outside``: the addresses for clients outside the cluster's network.

Touches ZooKeeper. `waltz.metadata.core.outside_addresses` says what the addresses are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import DryRun, Yes, confirm, examples
from waltz.cli.output import Format, Output, OutputFormat, say, show
from waltz.cli.rows import column, listing, or_dash
from waltz.cli.running import Failed, open_cluster, run
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.outside import (
    change_outside_addresses,
    delete_outside_addresses,
    read_outside_addresses,
)

app = typer.Typer(
    no_args_is_help=True,
    help="List, set and remove the addresses for clients outside the network of the cluster.",
)

SERVER, STORAGE, ADMIN_PORT = "server", "storage", "admin port"
"""What uses a registered address: a server, or one of the two ports of a storage."""

Pairs = Annotated[
    list[str],
    typer.Argument(
        metavar="REGISTERED=OUTSIDE...",
        help="An address that waltz cluster outside list shows, and the address by which clients "
        "outside reach the same port; both are HOST:PORT.",
    ),
]


@dataclass(frozen=True, slots=True)
class OutsideRow:
    """One registered address.

    ``used_by`` is ``server``, ``storage`` or ``admin port`` (of a storage); None if no process has
    registered the address. ``outside`` is None if the address has no outside address.
    """

    registered: str
    used_by: Annotated[str | None, column("used by", show=or_dash)]
    outside: Annotated[str | None, column(show=or_dash)]


@app.command(
    "list",
    cls=ClusterCommand,
    epilog=examples("waltz cluster outside list", "waltz cluster outside list -o json"),
)
@prints(OutsideRow, ResultForm.LIST)
def list_command(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show the registered addresses of servers and storages, and the outside address of each.

    Servers and storages register addresses that are valid in the network of the cluster, such as
    the IP address of a pod. A client with the access outside (--access outside, WALTZ_ACCESS or
    waltz.connect(access="outside")) dials the outside addresses instead. An address without an
    outside address is shown with a dash: clients with the access outside cannot reach it.
    """
    where = target(context)

    async def read() -> list[OutsideRow]:
        async with open_cluster(where) as cluster:
            used = await _registered(cluster)
            stored = await read_outside_addresses(cluster)
        outside = {} if stored is None else stored.value.addresses
        return [
            OutsideRow(address, used.get(address), outside.get(address))
            for address in (*used, *sorted(outside.keys() - used.keys()))
        ]

    show(output, listing("Addresses", OutsideRow, run(read())))


@app.command(
    "set",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster outside set server-0:55180=waltz.example:31000 --dry-run",
        "waltz cluster outside set server-0:55180=waltz.example:31000 "
        "storage-0:55280=waltz.example:31010",
    ),
)
@prints(Change)
def set_command(
    context: typer.Context,
    addresses: Pairs,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Set or replace outside addresses, such as those of a NAT or of forwarded ports.

    Each server needs its own outside address, because a client must reach the server that owns a
    partition. Each port of a storage needs its own, too: a storage does not say its name, so a
    client would not notice that it has reached another one. An outside address that two ports in
    use would share is refused. Storages need outside addresses only if Spark reads replicas from
    outside, or if commands that connect to storages are typed outside. With TLS, the certificates
    must have the outside host names. On Kubernetes the operator sets the addresses: do not set them
    by hand there.

    Undo it with waltz cluster outside remove.
    """
    where, wanted = target(context), _pairs(addresses)

    async def change_addresses() -> list[str]:
        async with open_cluster(where) as cluster:
            used = await _registered(cluster)
            stored = await read_outside_addresses(cluster)
            before = OutsideAddresses() if stored is None else stored.value

            def with_wanted(present: OutsideAddresses) -> OutsideAddresses:
                changed = present.with_addresses(wanted)
                _refuse_shared(changed, wanted, used)
                return changed

            # Also in a dry run, because this raises Failed if the real run would be refused.
            after = with_wanted(before)
            if not dry_run:
                await change_outside_addresses(cluster, with_wanted)
        for address in sorted(wanted.keys() - used.keys()):
            say(f"note: no server or storage has registered {address} now")
        return [
            f"set the outside address of {registered} to {outside}"
            for registered, outside in wanted.items()
            if before.outside_of(registered) != after.outside_of(registered)
        ]

    _show_steps("cluster outside set", where.root, run(change_addresses()), output, dry_run=dry_run)


@app.command(
    "remove",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster outside remove storage-0:55280",
        "waltz cluster outside remove --all --yes",
    ),
)
@prints(Change)
def remove_command(
    context: typer.Context,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="[REGISTERED]...", help="The registered addresses, as HOST:PORT."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Remove all of them, also if they cannot be decoded.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Remove outside addresses: clients outside cannot open connections to them any more.

    Open connections stay.
    """
    where, named = target(context), addresses or []
    if every == bool(named):  # Both or neither.
        raise typer.BadParameter("give either registered addresses, or --all")

    async def remove_all() -> list[str]:
        async with open_cluster(where) as cluster:
            await cluster.params()  # Raises if there is no cluster at this root.
            # The addresses are not decoded, so --all also removes malformed ones.
            if dry_run:
                existed = await cluster.store.get(cluster.paths.outside) is not None
            else:
                existed = await delete_outside_addresses(cluster)
        return ["remove all outside addresses"] if existed else []

    async def remove_named() -> list[str]:
        async with open_cluster(where) as cluster:
            await cluster.params()  # Raises if there is no cluster at this root.
            stored = await read_outside_addresses(cluster)
            known = {} if stored is None else stored.value.addresses
            if unknown := [address for address in named if address not in known]:
                raise Failed(
                    f"{unknown[0]} has no outside address; nothing was changed; show those that "
                    "have one with: waltz cluster outside list"
                )
            if not dry_run:
                await change_outside_addresses(cluster, lambda present: present.without(named))
        return [f"remove the outside address of {address}" for address in dict.fromkeys(named)]

    if every and not dry_run:
        confirm(f"all outside addresses of the cluster at {where.root} will be removed", yes=yes)
    steps = run(remove_all() if every else remove_named())
    _show_steps("cluster outside remove", where.root, steps, output, dry_run=dry_run)


async def _registered(cluster: Cluster) -> Mapping[str, str]:
    """Return, by registered address, what uses it: `SERVER`, `STORAGE` or `ADMIN_PORT`.

    The addresses of servers come first, then those of each storage.
    """
    servers = (await cluster.membership()).servers().values()
    maps = await cluster.storage_maps()
    used = {server.address: SERVER for server in servers}
    admin = maps.admin_addresses()
    for storage in sorted({*maps.groups.groups, *admin}):
        used[storage] = STORAGE
        if storage in admin:
            used[admin[storage]] = ADMIN_PORT
    return used


def _refuse_shared(
    addresses: OutsideAddresses, wanted: Iterable[str], used: Mapping[str, str]
) -> None:
    """Raise Failed if one of ``wanted`` would have the outside address of another address.

    ``wanted`` are the registered addresses that get outside addresses; ``addresses`` has all
    outside addresses afterwards. Only registered addresses that are in ``used`` are compared: the
    entry of a process that has ended may remain, and must not block the address for a new process.
    """
    for registered in wanted:
        others = [each for each in addresses.sharing(registered) if each in used]
        if others and registered in used:
            raise Failed(
                f"{registered} and {', '.join(others)} would both have the outside address "
                f"{addresses.outside_of(registered)}, which can lead to one of them only; nothing "
                "was changed"
            )


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the outside addresses in ``texts``, by registered address.

    A malformed text, and a second outside address for one registered address, is a usage error.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        registered, separator, outside = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"{text!r} is not REGISTERED=OUTSIDE, such as a:55180=b:31000")
        if pairs.setdefault(registered, outside) != outside:
            raise typer.BadParameter(f"{registered} has two outside addresses: give one")
    return pairs


def _show_steps(
    action: str, root: str, steps: list[str], output: OutputFormat, *, dry_run: bool
) -> None:
    """Print what was done, or would be done."""
    if not steps:
        sentence = "nothing is to be changed"
    else:
        sentence = "; ".join(f"would {step}" if dry_run else step for step in steps)
    show_change(output, change(action, root, steps, dry_run=dry_run), sentence)
