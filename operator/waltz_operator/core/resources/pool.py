"""`StoragePool`: a replica group. Its storages together hold one copy of all partitions. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from waltz_operator.core.resources.model import Model, checked, immutable, rule
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


class StorageVolumes(Model):
    """The volumes of a pool's pods, and what happens to them when they are no longer used."""

    data: Volume
    """The volume for partitions."""

    meta: Volume | None = None
    """A separate volume for the control file, which is small and rarely written. If unset, the
    control file is on the data volume."""

    on_scale_down: Disposal = Disposal.KEEP
    """What happens to the volumes of storages that are removed from the pool. It has no effect yet,
    because a pool cannot lose storages."""

    on_deletion: Disposal = Disposal.KEEP
    """What happens to all volumes when the cluster is deleted."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "has(self.meta) == has(oldSelf.meta)",
            "volumes.meta cannot be added or removed, because a storage's control file stays where "
            "it was created: create a new StoragePool instead",
        ),
    )


class StoragePoolSpec(Model):
    """The desired state of a pool."""

    storages: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            json_schema_extra=checked(
                rule(
                    "self >= oldSelf",
                    "the number of storages cannot decrease yet, because the replicas of the "
                    "removed storages would be lost: keep the number",
                )
            ),
        ),
    ] = 1
    """The number of storages that share the pool's copy of the partitions."""

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
    """The condition Ready."""

    cluster: str = ""
    """The WaltzCluster that uses the pool."""

    group: int | None = None
    """The id of the pool's replica group in ZooKeeper."""

    storages: str = ""
    """The number of ready storages, and of all storages, such as `2/3`."""

    message: str = ""
    """The number of storages that are ready, if some are not ready; otherwise empty."""


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
    )
