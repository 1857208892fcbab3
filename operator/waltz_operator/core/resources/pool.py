"""`StoragePool`: a replica group. Its storages together hold one copy of all partitions. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from waltz_operator.core.resources.model import Model, immutable, rule
from waltz_operator.core.resources.parts import (
    PORT_RULE,
    Conditions,
    Disposal,
    ObjectMeta,
    Port,
    Resources,
    RestartTime,
    Scheduling,
    Volume,
)


class Engine(StrEnum):
    """How storages make appended records durable: the setting ``storage.engine``."""

    FILES = "Files"
    WAL = "WAL"


class OnLoss(StrEnum):
    """What happens when the volume of a storage is lost."""

    MANUAL = "Manual"
    REPLACE = "Replace"


class LostVolume(Model):
    """A pod whose volume is lost."""

    pod: str
    """The name of the pod."""

    since: str
    """When the operator saw the loss first, in UTC."""


SizeText = Annotated[str, Field(max_length=64)]
"""A size as Kubernetes reports it.

Its length has a limit, from which the API server estimates the cost of the rules that read the
size. The API server refuses a CRD with a rule whose estimated cost is too high.
"""


class VolumeSizes(Model):
    """A size for each kind of volume, such as `10Gi`; empty for a kind without a volume."""

    data: SizeText = ""
    """The size of the volumes for partitions."""

    meta: SizeText = ""
    """The size of the volumes for control files."""

    wal: SizeText = ""
    """The size of the volumes for write-ahead logs."""


class StorageVolumes(Model):
    """The volumes of a pool's pods, and what happens to them when they are no longer used.

    A larger size enlarges the existing volumes, without a restart, if their class allows it.
    """

    data: Volume
    """The volume for partitions."""

    meta: Volume | None = None
    """A separate volume for the control file, which is small and rarely written. If unset, the
    control file is on the data volume."""

    wal: Volume | None = None
    """A separate volume for the write-ahead log of the engine `WAL`, larger than walBytes. If
    unset, the log is on the data volume. The engine `Files` does not use it."""

    on_scale_down: Disposal = Disposal.KEEP
    """What happens to the volumes of storages that are removed from the pool, and to those of all
    storages when the pool is removed from its cluster."""

    on_loss: OnLoss = OnLoss.MANUAL
    """What happens when the volume of a storage is lost. `Manual`: the operator waits until a
    person asks for its replacement. `Replace`: after `lossDelaySeconds`, it deletes the claim and
    the pod, and copies the replicas from the other pools to a new volume."""

    loss_delay_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """How long in seconds a volume must have been lost before the operator replaces it, if
    `onLoss` is `Replace`."""

    on_deletion: Disposal = Disposal.KEEP
    """What happens to all volumes when the cluster is deleted."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "has(self.meta) == has(oldSelf.meta)",
            "volumes.meta cannot be added or removed, because a storage's control file stays where "
            "it was created: create a new StoragePool instead",
        ),
        rule(
            "has(self.wal) == has(oldSelf.wal)",
            "volumes.wal cannot be added or removed, because Kubernetes does not change the "
            "volumes of existing storages: create a new StoragePool instead",
        ),
    )

    @property
    def by_kind(self) -> dict[str, Volume]:
        """The volumes that every pod of the pool has, by kind: ``data``, ``meta``, ``wal``."""
        volumes = {"data": self.data, "meta": self.meta, "wal": self.wal}
        return {kind: volume for kind, volume in volumes.items() if volume is not None}


class StoragePoolSpec(Model):
    """The desired state of a pool."""

    storages: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
        ),
    ] = 1
    """The number of storages that share the pool's copy of the partitions. When it changes, the
    partitions move first; a storage is removed when it holds none."""

    port: Annotated[
        Port,
        Field(
            json_schema_extra=immutable(
                "port cannot change, because a storage's host:port is its identity: create a new "
                "StoragePool instead",
                PORT_RULE,
            )
        ),
    ] = 6000
    """The port for servers."""

    admin_port: Annotated[
        Port,
        Field(
            json_schema_extra=immutable(
                "adminPort cannot change, because the storages are registered with it: create a "
                "new StoragePool instead",
                PORT_RULE,
            )
        ),
    ] = 6001
    """The port for administration."""

    http_port: Port = 6002
    """The port for health and metrics."""

    volumes: StorageVolumes
    """The volumes of each storage, and what happens to them when they are no longer used."""

    resources: Resources = Resources(requests={"cpu": "50m", "memory": "192Mi"})
    """The resource requests and limits of each storage. If unset, 50m of CPU and 192Mi of memory
    are requested, and there are no limits."""

    scheduling: Scheduling = Scheduling()
    """The nodes on which the storages may run. The zone cannot be changed."""

    restarted_at: RestartTime = ""
    """A time in UTC, such as `2026-01-31T12:00:00Z`. A new value restarts the storages of the pool,
    one at a time. If empty, no restart was requested."""

    segment_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = 1_000_000_000
    """The size in bytes at which a segment of the log is closed and the next segment begins."""

    engine: Engine = Engine.FILES
    """How the storages make appended records durable. `Files` flushes the segment files of each
    partition. `WAL` commits the records of all partitions of a storage in one write-ahead log,
    which needs fewer flushes if many partitions have appends at the same time."""

    wal_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = 256 << 20
    """The size in bytes of the write-ahead log of the engine `WAL`."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.port != self.adminPort && self.port != self.httpPort "
            "&& self.adminPort != self.httpPort",
            "port, adminPort and httpPort must all differ",
        ),
        rule(
            "!isQuantity(self.volumes.data.size) || "
            "quantity(self.volumes.data.size).asApproximateFloat() >= double(self.segmentBytes)",
            "volumes.data.size is less than one segment of the log: raise the size, or lower "
            "segmentBytes",
        ),
        rule(
            "self.engine != 'WAL' || has(self.volumes.wal) || !isQuantity(self.volumes.data.size) "
            "|| quantity(self.volumes.data.size).asApproximateFloat() "
            ">= double(self.segmentBytes) + double(self.walBytes)",
            "volumes.data.size is less than one segment and the write-ahead log: raise the size, "
            "or lower walBytes",
        ),
        rule(
            "!has(self.volumes.wal) || !isQuantity(self.volumes.wal.size) || "
            "quantity(self.volumes.wal.size).asApproximateFloat() "
            ">= 1.25 * double(self.walBytes)",
            "volumes.wal.size must be at least 1.25 times walBytes, because the file system takes "
            "a part of the volume: raise the size, or lower walBytes",
        ),
        rule(
            "self.scheduling.zone == oldSelf.scheduling.zone",
            "scheduling.zone cannot change, because the volumes belong to a zone: create a new "
            "StoragePool instead",
        ),
    )


class PoolStatus(Model):
    """The observed state of a pool."""

    observed_generation: int = 0
    """The last generation of the spec that the operator has read."""

    conditions: Conditions = ()
    """The conditions Ready and Resized."""

    cluster: str = ""
    """The WaltzCluster that uses the pool."""

    group: int | None = None
    """The id of the pool's replica group in ZooKeeper."""

    storages: str = ""
    """The number of ready storages, and of all storages, such as `2/3`."""

    lost_volumes: tuple[LostVolume, ...] = ()
    """The pods whose volume is lost."""

    requested_sizes: VolumeSizes = VolumeSizes()
    """The largest size that the volume claims of the pool's pods request, for each kind of volume.
    The spec cannot go below it."""

    rebalanced: str = ""
    """The value of the annotation `waltz.dev/rebalance` of the last rebalance that is complete. It
    is empty if none was requested."""

    message: str = ""
    """The number of storages that are ready, if some are not ready, and the volumes that do not
    have their size yet; otherwise empty."""


def _never_smaller(kind: str) -> dict[str, str]:
    """Return the rule that volumes of a ``kind`` do not shrink.

    The new size must be at least the old one, or at least the largest size that a volume claim
    requests. So an increase may be taken back while no claim requests it, for example because the
    StorageClass does not allow volumes to grow.
    """
    new, old = f"self.spec.volumes.{kind}.size", f"oldSelf.spec.volumes.{kind}.size"
    requested = f"self.status.requestedSizes.{kind}"
    return rule(
        f"!has(self.spec.volumes.{kind}) || !has(oldSelf.spec.volumes.{kind}) "
        f"|| !isQuantity({new}) || !isQuantity({old}) "
        f"|| !quantity({new}).isLessThan(quantity({old})) "
        f"|| (has(self.status) && has(self.status.requestedSizes) "
        f"&& has({requested}) && isQuantity({requested}) "
        f"&& !quantity({new}).isLessThan(quantity({requested})))",
        f"volumes.{kind}.size cannot be reduced, because a volume never shrinks: create a new "
        "StoragePool with smaller volumes, and name it in spec.pools in place of this one",
    )


class StoragePool(Model):
    """A replica group. Its storages together hold one copy of all partitions."""

    metadata: ObjectMeta
    spec: StoragePoolSpec
    status: PoolStatus = PoolStatus()

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.metadata.name.size() <= 40",
            "the pool's name becomes part of its pods' host names: at most 40 characters",
        ),
        rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the pool's name becomes part of its pods' host names: lower-case letters, digits and "
            "hyphens only, and a letter first",
        ),
        *(_never_smaller(kind) for kind in ("data", "meta", "wal")),
    )
