"""``waltz cluster rescue``: rebuild lost metadata. Touches ZooKeeper and the network.

ZooKeeper has *metadata* of each partition: its store session (spec/README.md has the terms), and
the state of each of its replicas. A rescue plans, shows the plan, asks for confirmation, and
writes. The plan has a decision for each partition: the metadata that follow from the reports of its
storages, or why no metadata are written. `rebuild` in `waltz.admin.core.rescue` makes the
decisions.

``waltz cluster metadata restore`` uses `rebuild_metadata`, too. It has a backup, from which it
first creates a lost cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from waltz.admin import (
    FencingFailed,
    PartitionRescue,
    fence_replicas,
    leaves_a_partition_closed,
    plan_rescue,
    restore_cluster,
    restore_outside_addresses,
    write_rescue,
)
from waltz.cli.cluster import rescue_rows
from waltz.cli.cluster.rescue_gaps import (
    missing_assignments,
    missing_outside,
    missing_transport,
)
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import DryRun, Yes, confirm, examples
from waltz.cli.output import Format, Output, OutputFormat, say, show
from waltz.cli.running import Failed, open_cluster, run, tls_of
from waltz.cli.suggested import suggested
from waltz.client.outside import network_for
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.cluster_backup import ClusterBackup
from waltz.metadata.core.formats import ReplicaAssignments, StoreParams
from waltz.metadata.core.outside_addresses import OutsideAddresses, storage_addresses
from waltz.metadata.core.server_transport import ServerTransport
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz.metadata.transport import restore_transport, tls_as_declared
from waltz.net import Network, TlsConfig
from waltz.protocol.notation import format_partitions

app = typer.Typer()

_RESCUE_SECONDS = 600.0
"""The time limit of planning, and again of writing."""
_WITHOUT_CLUSTER = (
    "there is no cluster at {root} in ZooKeeper; restore its backup with waltz cluster metadata "
    "restore FILE, or make it by waltz cluster create NAME --partitions N --key UUID (waltz disk "
    "control shows the key) and waltz storage add for each storage"
)
AnswerSeconds = Annotated[
    float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each storage has to answer.")
]


@dataclass(frozen=True, slots=True)
class _RescuePlan:
    """What a rescue would write to ZooKeeper.

    ``partitions`` has the decision for each partition. ``create_from`` is the backup to create the
    cluster from; None: the cluster is in ZooKeeper. ``assignments`` are the partitions to assign to
    each storage, if ZooKeeper assigns no partition at all; otherwise it is empty. ``transport`` and
    ``outside`` are the declaration of TLS and the outside addresses of the backup, if the cluster
    is in ZooKeeper without any, because a restore was interrupted; otherwise None
    (`restore_cluster` also writes those of a cluster that it creates).
    """

    partitions: list[PartitionRescue]
    create_from: ClusterBackup | None
    assignments: Mapping[str, tuple[int, ...]]
    transport: ServerTransport | None = None
    outside: OutsideAddresses | None = None

    @property
    def num_changed_partitions(self) -> int:
        """The number of partitions whose metadata would be written."""
        return sum(partition.decision.metadata is not None for partition in self.partitions)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be written."""
        return self.num_changed_partitions == 0 and not self._before_metadata

    @property
    def contents(self) -> str:
        """What would be written, as a text, in the order of `_write`."""
        metadata = f"the metadata of {self.num_changed_partitions} partitions"
        before_metadata = ", ".join(self._before_metadata)
        return f"{before_metadata} and {metadata}" if before_metadata else metadata

    @property
    def contents_without_metadata(self) -> str:
        """What was written if the metadata of partitions could not be written, as a text."""
        written = self._before_metadata
        if not written:
            return "nothing was written to ZooKeeper"
        return f"ZooKeeper now has {' and '.join(written)}, but not the metadata of partitions"

    @property
    def _before_metadata(self) -> list[str]:
        """What `_write` writes before the metadata of partitions, as texts."""
        texts = []
        if self.create_from is not None:
            texts.append("the cluster of the backup")
        if self.transport is not None:
            texts.append("the declaration of TLS of the backup")
        if self.outside is not None:
            texts.append("the outside addresses of the backup")
        if self.assignments:
            texts.append("the assignment of partitions")
        return texts


@app.command(
    "rescue",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster rescue --dry-run",
        "waltz cluster rescue --yes",
    ),
)
@prints(rescue_rows.RescuedPartition, ResultForm.LIST)
def rescue_command(
    context: typer.Context,
    timeout: AnswerSeconds = 10.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Rebuild the metadata of partitions from their storages, if ZooKeeper's data were lost.

    Start all storages first. The storages report the sessions, marks and last transactions of
    their replicas; the metadata follow from these if enough storages answer. Metadata that are not
    empty stay as they are. Servers open the partitions afterwards. The exit status is 1 if a
    partition stays closed.

    If the cluster itself is lost, too, restore a backup: waltz cluster metadata restore
    """
    rebuild_metadata(
        target(context), backup=None, timeout=timeout, output=output, dry_run=dry_run, yes=yes
    )


def rebuild_metadata(
    where: Target,
    backup: ClusterBackup | None,
    timeout: float,
    output: OutputFormat,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Show what would be written, ask for confirmation, and write it.

    With ``backup``, a cluster that is not in ZooKeeper is created, too. Each storage has
    ``timeout`` seconds for an answer. The exit status is 1 if a partition stays closed.
    """
    plan = run(_plan(where, backup, timeout), seconds=_RESCUE_SECONDS)
    show(output, rescue_rows.render_rescue(plan.partitions))
    if plan.is_empty:
        say("no partition needs other metadata")
    elif dry_run:
        say(f"{plan.contents} would be written")
    else:
        confirm(f"{plan.contents} will be written to {where.zookeeper}", yes=yes)
        run(_write(where, plan, backup, timeout), seconds=_RESCUE_SECONDS)
        say(f"{plan.contents} are written")
        if backup is not None:
            _say_preferences(backup)
    if leaves_a_partition_closed(plan.partitions):
        raise typer.Exit(1)


def _say_preferences(backup: ClusterBackup) -> None:
    """Print the commands that set the preferred partitions of the servers in ``backup``.

    Preferred partitions can be given only to a server that runs, so a restore cannot restore them.
    """
    if not any(backup.preferred.values()):
        return
    say(
        "the preferred partitions are not restored: servers that run still have them; for a server "
        "that was started again, set those of the backup with:"
    )
    for server, preferred in sorted(backup.preferred.items()):
        if preferred:
            partitions = format_partitions(sorted(preferred))
            say(suggested(f"waltz server prefer {shlex.quote(server)} {partitions}"))


async def _plan(where: Target, backup: ClusterBackup | None, seconds: float) -> _RescuePlan:
    """Decide what to write; change nothing. Each storage has ``seconds`` for an answer."""
    async with open_cluster(where) as cluster:
        create_from = await _backup_to_create_from(cluster, where, backup)
        if create_from is None:
            params, maps = await cluster.store_params(), await cluster.storage_maps()
        else:
            params = StoreParams(create_from.key, create_from.num_partitions)
            maps = create_from.maps
        transport = await missing_transport(cluster, backup)
        tls = await _tls(cluster, where, transport)
        network = _network(cluster, where, backup)
        outside = await missing_outside(cluster, backup) if create_from is None else None
        assignments = await missing_assignments(maps, params, tls, network, seconds)
        if assignments:
            # The decisions need the assignment that the rescue will write.
            all_assignments = {**maps.assignments.partitions, **assignments}
            maps = replace(maps, assignments=ReplicaAssignments(all_assignments))
        partitions = await plan_rescue(
            # None: a cluster that must be created has no metadata yet.
            cluster if create_from is None else None,
            maps,
            params,
            tls,
            backup,
            timeout_seconds=seconds,
            network=network,
        )
        if create_from is not None:
            return _RescuePlan(partitions, create_from, assignments)
        return _RescuePlan(partitions, None, assignments, transport, outside)


async def _write(
    where: Target, plan: _RescuePlan, backup: ClusterBackup | None, seconds: float
) -> None:
    """Write the contents of ``plan``, the metadata of partitions last.

    Raises Failed if the metadata cannot be written. All other contents of the plan are in ZooKeeper
    then.
    """
    async with open_cluster(where) as cluster:
        if plan.create_from is not None:
            await restore_cluster(cluster, plan.create_from)
        if plan.transport is not None:
            await restore_transport(cluster, plan.transport)
        if plan.outside is not None:
            await restore_outside_addresses(cluster, plan.outside)
        if plan.assignments:
            # One write assigns everything. After an interruption between two writes, a repeated
            # rescue would keep the incomplete assignment. Servers that run would open a partition
            # on its first replica, which may be empty.
            await cluster.change_replicas(_changes(plan.assignments))
        await _write_metadata(cluster, where, plan, backup, seconds)


async def _write_metadata(
    cluster: Cluster,
    where: Target,
    shown_plan: _RescuePlan,
    backup: ClusterBackup | None,
    seconds: float,
) -> None:
    """Write the metadata of ``shown_plan``, the plan that the user has seen.

    A server may still have a session from before the loss. It may commit transactions, which the
    plan does not take into account, until the storages are *fenced*: until they refuse its session.
    So the storages are fenced first, and then the decisions are made again. Raises Failed if a
    storage cannot be fenced, or if a decision has changed.
    """
    params, maps = await cluster.store_params(), await cluster.storage_maps()
    created_from = shown_plan.create_from
    restored = shown_plan.transport if created_from is None else created_from.transport
    tls = await _tls(cluster, where, restored)
    network = _network(cluster, where, backup)
    try:
        await fence_replicas(
            shown_plan.partitions, tls, params, timeout_seconds=seconds, network=network
        )
    except FencingFailed as problem:
        raise Failed(
            f"{problem}; {shown_plan.contents_without_metadata}; when the storage answers, type "
            "the command again"
        ) from problem
    rescues = await plan_rescue(
        cluster, maps, params, tls, backup, timeout_seconds=seconds, network=network
    )
    changed = [
        now
        for now, before in zip(rescues, shown_plan.partitions, strict=True)
        if now.decision != before.decision
    ]
    if changed:
        # The user has not confirmed the present decisions, so no metadata are written at all.
        consequence = "no metadata are written"
    else:
        # Returns the partitions whose metadata have changed since ``rescues`` were decided.
        changed = await write_rescue(cluster, rescues)
        consequence = "their metadata are not written"
    if changed:
        partitions = ", ".join(str(rescue.partition) for rescue in changed)
        raise Failed(
            f"partitions {partitions} changed during the rescue, and {consequence}; type the "
            "command again"
        )


async def _backup_to_create_from(
    cluster: Cluster, where: Target, backup: ClusterBackup | None
) -> ClusterBackup | None:
    """Return ``backup`` if the cluster must be created from it, None if it is in ZooKeeper.

    Raises Failed if there is neither a cluster nor a backup, if their keys or their numbers of
    partitions differ, or if the cluster is incomplete, as an interrupted restore leaves it.
    """
    if await cluster.store.get(where.root) is None:
        if backup is None:
            raise Failed(_WITHOUT_CLUSTER.format(root=where.root))
        return backup
    try:
        params, _ = await cluster.store_params(), await cluster.storage_maps()
    except NoCluster:
        if backup is None:
            raise
        raise Failed(
            f"the cluster at {where.root} in ZooKeeper is incomplete; if a restore was "
            "interrupted, delete what it has written, and type its command again; delete it with: "
            f"waltz cluster delete {shlex.quote(backup.name)}"
        ) from None
    if backup is not None and (params.key, params.num_partitions) != (
        backup.key,
        backup.num_partitions,
    ):
        raise Failed(
            f"the cluster at {where.root} has key {params.key} and {params.num_partitions} "
            f"partitions, the backup {backup.key} and {backup.num_partitions}; nothing was changed"
        )
    return None


async def _tls(cluster: Cluster, where: Target, restored: ServerTransport | None) -> TlsConfig:
    """Return the TLS settings for storages.

    Without an option, the servers' declaration decides whether TLS is used. It is ``restored`` if
    it is restored from a backup, because ZooKeeper has none.
    """
    if where.tls is None and restored is not None:
        return tls_as_declared(restored)
    return await tls_of(where, cluster)


def _network(cluster: Cluster, where: Target, backup: ClusterBackup | None) -> Network:
    """Return the network that reaches the storages.

    While ZooKeeper has no outside addresses, the network uses those of ``backup``. While ZooKeeper
    has no cluster, ``backup`` also names the storages: the network refuses an outside address that
    two of them share.
    """
    if backup is None:
        return network_for(cluster, where.access)
    storages = storage_addresses(backup.maps)
    return network_for(cluster, where.access, known=backup.outside, known_storages=storages)


def _changes(assignments: Mapping[str, tuple[int, ...]]) -> list[ReplicaChange]:
    """Return the changes that assign to each storage its partitions, which no storage has yet."""
    wanted = ReplicaAssignments(assignments)
    partitions = sorted({p for assigned in assignments.values() for p in assigned})
    return [
        ReplicaChange(p, expected=frozenset(), wanted=frozenset(wanted.storages_of(p)))
        for p in partitions
    ]
