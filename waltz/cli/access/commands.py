"""``waltz access``: change and show which client may do what with which partitions.

Touches ZooKeeper. The access rules are a list of grants; a cluster without them allows every
request. `waltz.metadata.core.access_rules` has the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from waltz.cli.access import rows as access_rows
from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import AnyPartitions, DryRun, Yes, confirm, examples, partitions_of
from waltz.cli.output import Format, Output, say, show
from waltz.cli.running import Failed, open_cluster, run
from waltz.metadata.access import change_access_rules, delete_access_rules, read_access_rules
from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.protocol.notation import format_partitions

app = typer.Typer(
    no_args_is_help=True, help="Grant, revoke and list what each client may do with partitions."
)

Client = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A name in the client's certificate: the common name, a DNS name or a URI.",
    ),
]
Rights = Annotated[
    str,
    typer.Argument(
        metavar="RIGHTS",
        help="read, append or administer, or several of them separated by commas.",
    ),
]


@app.command(
    "grant",
    cls=ClusterCommand,
    epilog=examples(
        "waltz access grant orders.example read,append 0-3",
        "waltz access grant reports.example read",
        "waltz access grant reports.example read 4 --dry-run",
    ),
)
@prints(access_rows.GrantRow, ResultForm.LIST)
def grant_command(
    context: typer.Context,
    client: Client,
    rights: Rights,
    partitions: AnyPartitions = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Let a client read, append to or administer partitions.

    read lets it mount partitions and read transactions. append lets it append, and works only
    together with read. administer lets it change which partitions a server prefers. A right
    includes no other right.

    The first grant switches the access rules on: from then on, servers refuse what is not granted.
    A running client fails until its own grant is made, so prepare one script with the grants of all
    clients. Servers need a CA (server.tls.ca) to know the names of clients.
    """
    where, granted_rights = target(context), _rights(rights)

    async def grant() -> AccessRules:
        async with open_cluster(where) as cluster:
            params = await cluster.params()
            grants = _grants(client, granted_rights, partitions, params.num_partitions)
            stored = await read_access_rules(cluster)
            if stored is None:
                say(
                    "the cluster has no access rules: this first grant "
                    f"{'would switch' if dry_run else 'switches'} them on, and servers refuse "
                    "every request that no grant allows"
                )
            if dry_run:
                return _with_grants(AccessRules() if stored is None else stored.value, grants)
            # Not computed from `stored`: another command may have changed the rules since.
            return await change_access_rules(cluster, lambda rules: _with_grants(rules, grants))

    rules = run(grant())
    _say_change("granted", client, granted_rights, partitions, dry_run=dry_run)
    show(output, access_rows.render_grants(rules, client))


@app.command(
    "revoke",
    cls=ClusterCommand,
    epilog=examples(
        "waltz access revoke orders.example append 3",
        "waltz access revoke reports.example read,append,administer --dry-run",
    ),
)
@prints(access_rows.GrantRow, ResultForm.LIST)
def revoke_command(
    context: typer.Context,
    client: Client,
    rights: Rights,
    partitions: AnyPartitions = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Take rights on partitions from a client.

    Servers close the connections of a client that loses the right read. Appends that a server has
    accepted before stay in the log. The access rules stay on, also without any grant; switch them
    off with waltz access disable.
    """
    where, revoked_rights = target(context), _rights(rights)

    async def revoke() -> AccessRules:
        async with open_cluster(where) as cluster:
            params = await cluster.params()
            grants = _grants(client, revoked_rights, partitions, params.num_partitions)
            stored = await read_access_rules(cluster)
            if stored is None:
                raise Failed(
                    "the cluster has no access rules, so every request is allowed; the "
                    "first waltz access grant switches them on"
                )
            if dry_run:
                return _without_grants(stored.value, grants)
            return await change_access_rules(cluster, lambda rules: _without_grants(rules, grants))

    rules = run(revoke())
    _say_change("revoked", client, revoked_rights, partitions, dry_run=dry_run)
    show(output, access_rows.render_grants(rules, client))


@app.command(
    "list",
    cls=ClusterCommand,
    epilog=examples("waltz access list", "waltz access list -o json"),
)
@prints(access_rows.GrantRow, ResultForm.LIST)
def list_command(
    context: typer.Context,
    client: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Show only this client. Default: all clients."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the grants: which client may do what with which partitions."""
    where = target(context)

    async def read() -> AccessRules | None:
        async with open_cluster(where) as cluster:
            # Without a cluster at this root, `params` raises. `read_access_rules` alone returns
            # None, and a mistyped root would look like a cluster that allows every request.
            await cluster.params()
            stored = await read_access_rules(cluster)
            return None if stored is None else stored.value

    rules = run(read())
    if rules is None:
        say("the cluster has no access rules: every request is allowed")
    show(output, access_rows.render_grants(rules, client))


@app.command(
    "disable",
    cls=ClusterCommand,
    epilog=examples("waltz access disable --dry-run", "waltz access disable --yes"),
)
@prints(Change)
def disable_command(
    context: typer.Context,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete all grants and switch the access rules off: every request is allowed.

    A server with the setting server.access.required refuses every request of clients instead.
    """
    where = target(context)

    async def disable() -> None:
        async with open_cluster(where) as cluster:
            await cluster.params()  # Raises if there is no cluster at this root.
            if dry_run:
                had_rules = await read_access_rules(cluster) is not None
            else:
                had_rules = await delete_access_rules(cluster)
        if not had_rules:
            raise Failed("the cluster has no access rules; nothing was changed")

    if not dry_run:
        confirm(f"all grants of the cluster at {where.root} will be deleted", yes=yes)
    run(disable())
    steps = ["delete all grants and switch the access rules off"]
    disabled = change("access disable", where.root, steps, dry_run=dry_run)
    verb = "would be" if dry_run else "are"
    show_change(output, disabled, f"the access rules {verb} switched off")


def _rights(text: str) -> tuple[Right, ...]:
    """Return the rights in ``text``; an unknown right is a usage error."""
    try:
        # `dict.fromkeys` drops repeated rights and keeps their order.
        return tuple(dict.fromkeys(Right(name.strip()) for name in text.split(",")))
    except ValueError:
        known = ", ".join(right.value for right in Right)
        raise typer.BadParameter(
            f"{text!r} is not a list of rights; the rights are {known}, separated by commas"
        ) from None


def _grants(
    client: str, rights: Iterable[Right], partitions: str | None, num_partitions: int
) -> list[Grant]:
    """Return one grant for each right and each range of consecutive partitions.

    ``partitions`` are ranges as on the command line, None for all partitions. Malformed ranges are
    a usage error. Raises Failed if the cluster does not have one of the partitions, or if the name
    of the client is empty.
    """
    if not client.strip():
        raise Failed("the name of the client is empty; use a name in its certificate")
    wanted = partitions_of(partitions)  # In ascending order.
    if wanted is None:
        wanted = tuple(range(num_partitions))
    last_wanted = wanted[-1]
    if last_wanted >= num_partitions:
        raise Failed(
            f"there is no partition {last_wanted}: the cluster has 0 to {num_partitions - 1}"
        )
    ranges = _ranges(wanted)
    return [Grant(client, right, first, last) for right in rights for first, last in ranges]


def _ranges(partitions: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the first and the last partition of each range of consecutive partitions.

    ``partitions`` are in ascending order.
    """
    ranges: list[tuple[int, int]] = []
    for partition in partitions:
        if ranges and ranges[-1][1] == partition - 1:
            ranges[-1] = (ranges[-1][0], partition)
        else:
            ranges.append((partition, partition))
    return ranges


def _with_grants(rules: AccessRules, grants: Iterable[Grant]) -> AccessRules:
    """Return the rules with all of ``grants``."""
    for grant in grants:
        rules = rules.with_grant(grant)
    return rules


def _without_grants(rules: AccessRules, grants: Iterable[Grant]) -> AccessRules:
    """Return the rules without any of ``grants``."""
    for grant in grants:
        rules = rules.without_grant(grant)
    return rules


def _say_change(
    verb: str,
    client: str,
    rights: tuple[Right, ...],
    partitions: str | None,
    *,
    dry_run: bool,
) -> None:
    """Print what was changed, or would be changed; ``verb`` is ``granted`` or ``revoked``."""
    wanted = partitions_of(partitions)
    shown = "all partitions" if wanted is None else f"partitions {format_partitions(wanted)}"
    what = ", ".join(right.value for right in rights)
    say(f"{'would be ' if dry_run else ''}{verb}: {what} on {shown} for {client}")
