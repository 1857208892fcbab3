"""Observe a cluster, and perform the steps of orders. Touches ZooKeeper and the network.

`order_progress.carry_out` decides which step is performed when; the `OrderExecutor` of this module
performs the step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from waltz.admin.core.replicas import LAG_ALLOWED, ObservationScope, ReplicaObservation
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    MetadataStep,
    RegisterStorage,
    RepairRecords,
    SetSwitch,
    Step,
    StorageStep,
    SwitchKind,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
)
from waltz.admin.core.storage_figures import storage_figures
from waltz.admin.observation import ReplicaObserver
from waltz.admin.offline_copy import MayContinue, Progress, copy_offline
from waltz.admin.order_progress import ReplicaRefused
from waltz.admin.peer_repair import repair_from_peer
from waltz.admin.replica_comparison import prove_equality
from waltz.admin.storage_admin import StorageAdmin, admin_address
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import ChangeRefused
from waltz.metadata.retry import answered_within
from waltz.net import TCP, Network, RemoteFailure, RpcConnection, TlsConfig, split_address
from waltz.protocol.admin import Switch
from waltz.protocol.damaged_ranges import DamagedRange

COPY_BATCH = 1000
"""How many transactions one request of a copy transfers."""

COPY_PART_SECONDS = 10.0
"""The time limit of each part of a copy.

It is larger than `_PEER_SECONDS` of `waltz_storage.shell.peer_pull`. After that time a storage
reports that it cannot read from another one, and `copy_offline` then relays the records. With a
smaller limit, the copy would fail before this report.
"""


class OrderExecutor:
    """Observes and changes the replicas of one cluster.

    There are three time limits:

    * ``answer_seconds`` applies to the answers of storages and servers to an observation, to
      ZooKeeper in observations and steps, and to the beginning of a copy, before its first part.
    * ``copy_seconds`` applies to each part of a copy, which ends with a call of ``on_copied``. It
      must be larger than the time after which a storage reports that it cannot read from another
      one (see `COPY_PART_SECONDS`).
    * ``step_seconds`` (None: ``answer_seconds``) applies to each batch of a repair, which computes
      checksums on both disks, and to any other step at a storage, which may have to open large
      files.

    The comparisons that a `ChangeAssignment` with ``proofs`` makes have the limits of
    `prove_equality`.

    ``retry`` and ``tls_of`` are as in `ReplicaObserver`, ``lag_allowed`` as in
    `ReplicaObservation`. ``copy_batch`` is how many transactions one request of a copy or a repair
    transfers. ``on_copied`` is called with the progress of a copy, ``on_compared`` with the
    progress of a comparison. If a destination cannot read the records of a copy from the source,
    ``relay`` decides: if it is True, the records go through this process, otherwise the copy fails.
    ``network`` opens the connections.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: TlsConfig,
        *,
        answer_seconds: float = 10.0,
        copy_seconds: float = COPY_PART_SECONDS,
        step_seconds: float | None = None,
        lag_allowed: int = LAG_ALLOWED,
        retry: bool = True,
        tls_of: Mapping[str, TlsConfig] | None = None,
        copy_batch: int = COPY_BATCH,
        on_copied: Progress = lambda _at, _last: None,
        on_compared: Progress = lambda _at, _last: None,
        relay: bool = True,
        network: Network = TCP,
    ) -> None:
        self.cluster = cluster
        self.tls = tls
        self._tls_of = tls_of or {}
        self._answer_seconds = answer_seconds
        self._copy_seconds = copy_seconds
        self._step_seconds = answer_seconds if step_seconds is None else step_seconds
        self._copy_batch = copy_batch
        self._on_copied = on_copied
        self._on_compared = on_compared
        self._relay = relay
        self._network = network
        self._observer = ReplicaObserver(
            cluster,
            tls,
            answer_seconds=answer_seconds,
            lag_allowed=lag_allowed,
            retry=retry,
            tls_of=tls_of,
            network=network,
            metadata_seconds=answer_seconds,
        )

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """Return the present state. Raises NoCluster, MalformedMetadata, OperationTimedOut."""
        return await self._observer.observe(scope)

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        """Perform one step. Raises the errors of `order_progress.StepPerformer.perform`.

        A copy ends early, without an error, when ``may_continue`` returns False. If the same step
        is performed again, the copy continues.
        """
        match step:
            case CopyReplica():
                await self._copy(step, may_continue)
            case RepairRecords():
                await self._repair(step)
            case ChangeAssignment() | RegisterStorage() | UnregisterStorage():
                if isinstance(step, ChangeAssignment):
                    await self._prove(step)
                async with answered_within(self._answer_seconds):
                    await perform_in_metadata(self.cluster, step)
            case _:
                await self._perform_at_storage(step)

    async def _prove(self, step: ChangeAssignment) -> None:
        """Prove the conditions of a change. Raises the errors of `prove_equality`."""
        for condition in step.proofs:
            await prove_equality(
                self.cluster,
                self.tls,
                condition,
                on_compared=self._on_compared,
                network=self._network,
            )

    async def _perform_at_storage(self, step: StorageStep) -> None:
        """Perform a step at a storage's admin port within ``step_seconds``."""
        try:
            async with asyncio.timeout(self._step_seconds):
                async with await self._open_admin(step.storage) as admin:
                    try:
                        await perform_at_storage(admin, step)
                    except RemoteFailure as failure:
                        # Even a refused replica can be dropped, so a drop failed for another
                        # reason.
                        if not isinstance(step, DropReplicas):
                            await _raise_if_refused(admin, step.storage, step.partitions, failure)
                        raise
        except TimeoutError:
            raise TimeoutError(
                f"storage {step.storage} has not answered within {self._step_seconds:g} s; the "
                "storage may still complete the step, for example while it opens large files"
            ) from None

    async def _copy(self, step: CopyReplica, may_continue: MayContinue) -> None:
        """Copy a replica; the time limit applies to each part, not to the whole copy."""
        async with answered_within(self._answer_seconds):
            params = await self.cluster.store_params()
            source_port = await self._admin_port(step.source)
        clock = asyncio.get_running_loop().time
        # Each call of `progress` begins a part, and gives it `copy_seconds`.
        async with asyncio.timeout(self._answer_seconds) as deadline:

            def progress(at: int, last: int) -> None:
                deadline.reschedule(clock() + self._copy_seconds)
                self._on_copied(at, last)

            async with (
                await self._open_admin(step.source) as source,
                await self._open_admin(step.destination) as destination,
            ):
                # The port for servers: through it the log is cut and relayed records are written.
                # By the identity, the storage checks that both sides mean the same cluster.
                address = split_address(step.destination)
                tls = self._tls_of.get(step.destination, self.tls)
                identity = params.key, params.num_partitions
                destination_connection = await RpcConnection.open_storage(
                    address, tls, identity, network=self._network
                )
                try:
                    await copy_offline(
                        source,
                        destination,
                        destination_connection,
                        step.partition,
                        batch_size=self._copy_batch,
                        progress=progress,
                        overwrite=step.overwrite,
                        source_address=admin_address(step.source, source_port),
                        relay=self._relay,
                        may_continue=may_continue,
                    )
                except RemoteFailure as failure:
                    partitions = (step.partition,)
                    await _raise_if_refused(destination, step.destination, partitions, failure)
                    raise
                finally:
                    destination_connection.close()

    async def _repair(self, step: RepairRecords) -> None:
        """Repair records; the time limit applies to each batch, not to the whole range."""
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(self._step_seconds) as deadline:

            def progress(_at: int, _last: int) -> None:
                deadline.reschedule(clock() + self._step_seconds)

            async with (
                await self._open_admin(step.source) as source,
                await self._open_admin(step.destination) as destination,
            ):
                damaged = DamagedRange(step.partition, step.first_id, step.last_id)
                await repair_from_peer(
                    source, destination, damaged, batch_size=self._copy_batch, progress=progress
                )

    async def _open_admin(self, storage: str) -> StorageAdmin:
        """Connect to the admin port of ``storage``."""
        async with answered_within(self._answer_seconds):
            port, params = await self._admin_port(storage), await self.cluster.store_params()
        tls = self._tls_of.get(storage, self.tls)
        return await StorageAdmin.open(storage, port, tls, params, self._network)

    async def _admin_port(self, storage: str) -> int:
        """Return the admin port of ``storage``. Raises ChangeRefused if ZooKeeper has none."""
        port = (await self.cluster.connections()).value.admin_ports.get(storage)
        if port is None:
            raise ChangeRefused(f"Storage {storage} is not in the cluster.")
        return port


async def perform_at_storage(admin: StorageAdmin, step: StorageStep) -> None:
    """Perform a step at a storage's admin port. Raises the errors of the requests."""
    match step:
        case CreateReplicas(_, partitions):
            await admin.assign(partitions)
        case SwitchOn(_, partitions):
            await admin.set_available(partitions, available=True)
        case SwitchOff(_, partitions):
            await admin.set_available(partitions, available=False)
        case SetSwitch(_, partitions, kind, on):
            which = Switch.READ if kind is SwitchKind.READ else Switch.WRITE
            await admin.switch(partitions, which, on=on)
        case DropReplicas(_, partitions, delete_files, final=True):
            await _drop_all(admin, partitions, delete_files=delete_files)
        case DropReplicas(_, partitions, delete_files, _):
            await admin.unassign(partitions, delete_files=delete_files)


async def _drop_all(admin: StorageAdmin, partitions: Iterable[int], *, delete_files: bool) -> None:
    """Drop the replicas of ``partitions``, also those that the storage does not list.

    A storage refuses to drop a replica that it does not have. Here this is no failure: an attempt
    whose answer was lost may have dropped the replica, or the disk was emptied. So the replicas
    that the storage has for certain are dropped first, by a request of their own.
    """
    listed = {*await admin.partitions(), *storage_figures(await admin.metrics()).refused}
    wanted = frozenset(partitions)
    if wanted & listed:
        await admin.unassign(wanted & listed, delete_files=delete_files)
    if wanted - listed:
        await admin.unassign_unlisted(wanted - listed, delete_files=delete_files)


async def _raise_if_refused(
    admin: StorageAdmin, storage: str, partitions: Iterable[int], failure: RemoteFailure
) -> None:
    """Raise ReplicaRefused if ``storage`` refuses one of the ``partitions`` of a failed step.

    A storage refuses a replica whose files it cannot use, so another try would fail, too. After any
    other ``failure``, return: a later try may succeed. A storage of Waltz 0.13.2 does not report
    which replicas it refuses.
    """
    try:
        refused = storage_figures(await admin.metrics()).refused
    except RemoteFailure:
        return
    reasons = [refused[partition] for partition in partitions if partition in refused]
    if reasons:
        raise ReplicaRefused(f"storage {storage}: {'; '.join(reasons)}") from failure


async def perform_in_metadata(cluster: Cluster, step: MetadataStep) -> None:
    """Perform a step that changes the storage maps in ZooKeeper."""
    match step:
        case ChangeAssignment(changes, _):
            await cluster.change_replicas(changes)
        case RegisterStorage(storage, group, admin_port):
            await cluster.add_storage_node(storage, group, admin_port)
        case UnregisterStorage(storage):
            await cluster.remove_storage_node(storage)
