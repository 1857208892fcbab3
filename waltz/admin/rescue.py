"""Back up and restore the metadata of a cluster, and rebuild the metadata of its partitions.

Touches ZooKeeper and the network.

A *rescue* rebuilds lost metadata of partitions from the replicas on the storages: `plan_rescue`
queries the storages, `core.rescue` decides, `write_rescue` writes. A partition's metadata are
written by compare-and-set with the version that was read before. So if a server has written
metadata meanwhile, the server's are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from waltz.admin.core.replicas import StorageReplicas
from waltz.admin.core.rescue import (
    RebuildDecision,
    ReplicaReport,
    Verdict,
    last_opened_session,
    rebuild,
    records_to_compare,
)
from waltz.admin.inspection import read_partition, read_partitions
from waltz.admin.replica_comparison import read_and_sum
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.access import read_access_rules
from waltz.metadata.cluster import Cluster, VersionedValue
from waltz.metadata.core.cluster_backup import ClusterBackup
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import NEW_PARTITION, StoreParams, decode_id
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.outside import change_outside_addresses, read_outside_addresses
from waltz.metadata.retry import until_answered
from waltz.metadata.store import VersionConflict
from waltz.metadata.transport import read_transport, restore_transport
from waltz.net import (
    TCP,
    ConnectionLost,
    DialFailed,
    Network,
    RemoteFailure,
    RpcConnection,
    TlsConfig,
    split_address,
)
from waltz.protocol import UnsupportedByPeer
from waltz.protocol import storage as messages

log = logging.getLogger(__name__)
T = TypeVar("T")

ID_ROOM = 1_000_000
"""How far new ids of clients and servers are above those of the backup.

After the backup was made, the cluster gave an id to each client and server that started, surely
fewer than this number. No id may be given twice: for example, two clients with one id could use one
request id, and each take the other's append for its own.
"""


class FencingFailed(Exception):
    """A storage could not be made to refuse older sessions; the text names the storage and why."""


@dataclass(frozen=True, slots=True)
class PartitionRescue:
    """The reports on one partition, and the decision that follows from them."""

    partition: int
    reports: tuple[ReplicaReport, ...]
    decision: RebuildDecision

    def is_held_by(self, storage: str) -> bool:
        """Return whether ``storage`` reported that it holds a replica of the partition."""
        return any(each.storage == storage and each.held is not None for each in self.reports)


async def back_up(cluster: Cluster) -> ClusterBackup:
    """Return a backup of the cluster's metadata in ZooKeeper.

    Each read is repeated until ZooKeeper answers. Raises NoCluster, MalformedMetadata, StoreError.
    """
    params, store_params = await cluster.params(), await cluster.store_params()
    servers = (await cluster.membership()).servers().values()
    access = await read_access_rules(cluster)
    transport = await _value_if_readable(read_transport(cluster))
    outside = await _value_if_readable(read_outside_addresses(cluster))
    preferences = {server.address: server.preferred for server in servers if server.preferred}
    return ClusterBackup(
        name=params.name,
        root=cluster.paths.root,
        key=store_params.key,
        num_partitions=store_params.num_partitions,
        last_client_id=await _last_id(cluster, cluster.paths.client_id),
        last_server_id=await _last_id(cluster, cluster.paths.server_id),
        maps=await cluster.storage_maps(),
        preferred=preferences,
        partitions=await read_partitions(cluster, store_params.num_partitions),
        access=None if access is None else access.value,
        transport=transport,
        outside=outside,
    )


async def _value_if_readable(reading: Awaitable[VersionedValue[T] | None]) -> T | None:
    """Return the value of an optional part of a backup, None if there is none.

    A part that cannot be decoded is logged and left out, because it must not prevent a backup. No
    optional part is needed for a restore: servers declare again whether they use TLS, and the
    outside addresses can be set again.
    """
    try:
        stored = await reading
    except MalformedMetadata as problem:
        log.warning("%s; the backup is made without it", problem)
        return None
    return None if stored is None else stored.value


async def restore_cluster(cluster: Cluster, backup: ClusterBackup) -> None:
    """Create the znodes of a cluster from ``backup``, without metadata of partitions.

    Raises ClusterExists, StoreError.
    """
    await create_cluster(
        cluster.store,
        cluster.paths.root,
        backup.name,
        backup.num_partitions,
        key=backup.key,
        storages=backup.maps,
        last_client_id=backup.last_client_id + ID_ROOM,
        last_server_id=backup.last_server_id + ID_ROOM,
        access=backup.access,
    )
    if backup.transport is not None:
        await restore_transport(cluster, backup.transport)
    if backup.outside is not None:
        await restore_outside_addresses(cluster, backup.outside)


async def restore_outside_addresses(cluster: Cluster, outside: OutsideAddresses) -> None:
    """Set those of ``outside`` that the cluster lacks. Raises MalformedMetadata, StoreError."""
    # The addresses that the cluster has already are newer than those of a backup.
    await change_outside_addresses(
        cluster, lambda present: outside.with_addresses(present.addresses)
    )


async def query_storages(
    maps: StorageMaps,
    params: StoreParams,
    tls: TlsConfig,
    *,
    timeout_seconds: float,
    network: Network = TCP,
) -> dict[str, StorageReplicas]:
    """Query all replicas of all storages in ``maps``, concurrently; return them by storage."""

    async def query(storage: str) -> StorageReplicas:
        port = maps.connections.admin_ports.get(storage)
        if port is None:
            return StorageReplicas(problem="ZooKeeper has no admin port of this storage")
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                await StorageAdmin.open(storage, port, tls, params, network) as admin,
            ):
                return StorageReplicas({held.partition: held for held in await admin.states()})
        except TimeoutError:
            return StorageReplicas(problem=f"no answer within {timeout_seconds:g} s")
        except (ConnectionLost, DialFailed, RemoteFailure) as problem:
            return StorageReplicas(problem=str(problem))

    names = sorted({*maps.connections.admin_ports, *maps.assignments.partitions})
    return dict(zip(names, await asyncio.gather(*map(query, names)), strict=True))


async def plan_rescue(
    cluster: Cluster | None,
    maps: StorageMaps,
    params: StoreParams,
    tls: TlsConfig,
    backup: ClusterBackup | None,
    *,
    timeout_seconds: float,
    network: Network = TCP,
) -> list[PartitionRescue]:
    """Decide the metadata of all partitions; change nothing.

    ``cluster`` is None if ZooKeeper has no metadata. ``backup`` says which session of each
    partition is known to have opened; None: there is no backup. A storage has ``timeout_seconds``
    for each answer.
    """
    replicas = await query_storages(
        maps, params, tls, timeout_seconds=timeout_seconds, network=network
    )
    plans = []
    for partition in range(params.num_partitions):
        present = None if cluster is None else await read_partition(cluster, partition)
        reports = _reports(partition, maps, replicas)
        reports, checksums = await _read_checksums(
            partition, reports, maps, params, tls, timeout_seconds=timeout_seconds, network=network
        )
        backed_up = backup.partitions if backup is not None else {}
        opened_session = last_opened_session(backed_up.get(partition, NEW_PARTITION))
        decision = rebuild(reports, present, checksums, opened_session)
        plans.append(PartitionRescue(partition, reports, decision))
    return plans


async def fence_replicas(
    plans: list[PartitionRescue],
    tls: TlsConfig,
    params: StoreParams,
    *,
    timeout_seconds: float,
    network: Network = TCP,
) -> None:
    """Make the storages refuse all sessions below those that ``plans`` write.

    A server may still have a session from before the metadata were lost. The server may commit
    transactions that ``plans`` do not know, until this function makes the storages refuse its
    appends. So plan again afterwards. Raises FencingFailed.
    """
    identity = params.key, params.num_partitions
    holders = {
        report.storage for plan in plans for report in plan.reports if report.held is not None
    }
    for storage in sorted(holders):
        try:
            async with asyncio.timeout(timeout_seconds):
                connection = await RpcConnection.open_storage(
                    split_address(storage), tls, identity, network=network
                )
            try:
                await _fence_held(connection, storage, plans, timeout_seconds)
            finally:
                connection.close()
        except TimeoutError as late:
            raise FencingFailed(
                f"storage {storage} did not answer within {timeout_seconds:g} s"
            ) from late
        except (ConnectionLost, DialFailed, RemoteFailure) as problem:
            raise FencingFailed(f"storage {storage}: {problem}") from problem


async def _fence_held(
    connection: RpcConnection,
    storage: str,
    plans: list[PartitionRescue],
    timeout_seconds: float,
) -> None:
    """Fence the partitions that ``storage`` holds and whose metadata ``plans`` write.

    The storage has ``timeout_seconds`` for each partition: with one limit for all partitions, a
    storage with many of them could never be fenced. Raises TimeoutError.
    """
    for plan in plans:
        if plan.decision.metadata is None or not plan.is_held_by(storage):
            continue
        async with asyncio.timeout(timeout_seconds):
            await _fence(connection, plan.partition, plan.decision.metadata.session_id)


async def _fence(connection: RpcConnection, partition: int, session_id: int) -> None:
    """Make a storage refuse all sessions of ``partition`` below ``session_id``."""
    # A refusal of the request is no failure: in each case the storage takes no appends of older
    # sessions. If the partition is switched off, the storage has raised the fence nevertheless. If
    # the session is too old, the fence is higher already. A damaged or unassigned replica takes no
    # appends at all.
    with contextlib.suppress(RemoteFailure):
        await connection.call(
            lambda seq: messages.LastSessionInfoRequest(session_id, seq, partition),
            messages.LastSessionInfoResponse,
        )


async def write_rescue(cluster: Cluster, plans: list[PartitionRescue]) -> list[PartitionRescue]:
    """Write the decided metadata; return the plans whose partitions have changed metadata since.

    The metadata of these partitions are not written.
    """
    changed = []
    for plan in plans:
        wanted = plan.decision.metadata
        if wanted is None:
            continue
        present = await cluster.partition_metadata(plan.partition)
        # A plan writes metadata only where those in ZooKeeper named no replicas. If they name some
        # now, or have this session or a newer one, a server or another rescue has written them.
        if present.value.replicas or present.value.session_id >= wanted.session_id:
            changed.append(plan)
            continue
        try:
            await cluster.write_partition_metadata(plan.partition, wanted, present.version)
        except VersionConflict:
            changed.append(plan)
    return changed


def held_assignments(replicas: Mapping[str, StorageReplicas]) -> dict[str, tuple[int, ...]]:
    """Return the partitions that each storage holds, without storages that hold none.

    They are the assignments for a cluster whose own are lost.
    """
    return {storage: tuple(sorted(each.held)) for storage, each in replicas.items() if each.held}


def leaves_a_partition_closed(plans: list[PartitionRescue]) -> bool:
    """Whether there is a partition that servers cannot open after the rescue."""
    unopenable = (Verdict.UNDECIDED, Verdict.STALE)
    return any(plan.decision.verdict in unopenable for plan in plans)


def _reports(
    partition: int, maps: StorageMaps, replicas: Mapping[str, StorageReplicas]
) -> tuple[ReplicaReport, ...]:
    """Return the reports on the replicas of a partition, assigned or only held by a storage."""
    assigned = set(maps.assignments.storages_of(partition))
    return tuple(
        ReplicaReport(
            storage, report.held.get(partition), report.problem, assigned=storage in assigned
        )
        for storage, report in replicas.items()
        if storage in assigned or partition in report.held
    )


async def _read_checksums(
    partition: int,
    reports: tuple[ReplicaReport, ...],
    maps: StorageMaps,
    params: StoreParams,
    tls: TlsConfig,
    *,
    timeout_seconds: float,
    network: Network,
) -> tuple[tuple[ReplicaReport, ...], dict[tuple[str, int], int]]:
    """Return the reports, and the checksums by storage and transaction id that `rebuild` needs.

    `rebuild` compares the checksums to find the replicas that have the same record at an id. A
    storage that cannot read a record is treated as one that did not answer: its report gets the
    error. Without this replica, `rebuild` may need the checksums of other ids, so all checksums are
    read again.
    """
    while True:
        checksums: dict[tuple[str, int], int] = {}
        failed: dict[str, str] = {}
        for storage, transaction_id in sorted(records_to_compare(reports)):
            port = maps.connections.admin_ports[storage]
            try:
                async with (
                    asyncio.timeout(timeout_seconds),
                    await StorageAdmin.open(storage, port, tls, params, network) as admin,
                ):
                    checksums[storage, transaction_id] = await _checksum(
                        admin, partition, transaction_id
                    )
            except TimeoutError:
                failed[storage] = f"no answer within {timeout_seconds:g} s"
            except (ConnectionLost, DialFailed, RemoteFailure) as problem:
                failed[storage] = str(problem)
        if not failed:
            return reports, checksums
        reports = tuple(
            replace(report, held=None, problem=failed[report.storage])
            if report.storage in failed
            else report
            for report in reports
        )


async def _checksum(admin: StorageAdmin, partition: int, transaction_id: int) -> int:
    """Return the checksum of one record; raises RemoteFailure if it cannot be read."""
    try:
        record_sum = await admin.range_checksum(partition, transaction_id, transaction_id)
    except UnsupportedByPeer:
        sum_or_problem = await read_and_sum(admin, partition, transaction_id, transaction_id)
        if isinstance(sum_or_problem, str):
            raise RemoteFailure(sum_or_problem) from None
        record_sum = sum_or_problem
    if record_sum.last_id != transaction_id:
        raise RemoteFailure(f"transaction {transaction_id} is missing")
    return record_sum.checksum


async def _last_id(cluster: Cluster, path: str) -> int:
    """Return the last id that the znode ``path`` has given out, 0 without such a znode."""
    node = await until_answered(cluster.store, lambda: cluster.store.get(path))
    return 0 if node is None or node.data is None else decode_id(node.data)
