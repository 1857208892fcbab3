"""`StoragePool`: a replica group, whose storages together hold one copy of all partitions. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from waltz_operator.core.resources.model import Model, checked, immutable, rule
from waltz_operator.core.resources.parts import (
    OPEN_TO_ALL,
    Conditions,
    Disposal,
    ObjectMeta,
    Port,
    Resources,
    Scheduling,
    Volume,
)

_IDENTITY = "a storage's host:port is its identity: create a new StoragePool instead"


class StorageVolumes(Model):
    """The volumes of a pool's pods, and whether they are kept."""

    data: Volume
    """The volume for partitions."""

    meta: Volume | None = None
    """A separate volume for the control file, which is small and rarely written. Not set: the data
    volume holds it."""

    on_scale_down: Disposal = Disposal.KEEP
    """What happens to the volumes of retired storages."""

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
                    "a pool cannot lose storages yet, because each holds replicas that have to be "
                    "moved first: leave storages as it was",
                )
            ),
        ),
    ] = 1
    """The number of storages that share the pool's copy of the partitions."""

    port: Annotated[
        Port,
        Field(json_schema_extra=immutable(f"port cannot change: {_IDENTITY}", OPEN_TO_ALL)),
    ] = 6000
    """The port for servers."""

    admin_port: Annotated[
        Port,
        Field(json_schema_extra=immutable(f"adminPort cannot change: {_IDENTITY}", OPEN_TO_ALL)),
    ] = 6001
    """The port for administration."""

    http_port: Port = 6002
    """The port for health and metrics."""

    volumes: StorageVolumes
    resources: Resources = Resources()
    scheduling: Scheduling = Scheduling()

    segment_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = 1_000_000_000
    """The size at which a segment of the log is closed and the next one is started."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.port != self.adminPort && self.port != self.httpPort "
            "&& self.adminPort != self.httpPort",
            "port, adminPort and httpPort must all differ",
        ),
        rule(
            "!isQuantity(self.volumes.data.size) || "
            "quantity(self.volumes.data.size).asApproximateFloat() >= double(self.segmentBytes)",
            "volumes.data.size is less than one segment of the log: raise it, or lower "
            "segmentBytes",
        ),
    )


class PoolStatus(Model):
    """The observed state of a pool."""

    observed_generation: int = 0
    conditions: Conditions = ()
    cluster: str = ""
    """The WaltzCluster that uses it."""

    group: int | None = None
    """The id of its replica group in ZooKeeper."""

    storages: str = ""
    """Ready storages of all storages, such as `2/3`."""

    message: str = ""


class StoragePool(Model):
    """A replica group, whose storages together hold one full copy of all partitions."""

    metadata: ObjectMeta
    spec: StoragePoolSpec
    status: PoolStatus = PoolStatus()

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.metadata.name.size() <= 40",
            "the pool's name becomes part of its pods' host names: at most 40 characters",
        ),
        rule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "the pool's name becomes part of its pods' host names: lower-case letters, digits and "
            "hyphens only",
        ),
    )
