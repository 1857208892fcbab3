"""`StoragePool`: one replica group; its storages together hold one copy of all partitions. Pure."""

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

_IDENTITY = "a storage's host:port is its identity for ever: make a new StoragePool instead"


class StorageVolumes(Model):
    """The volumes of a pool's pods, and what becomes of them."""

    data: Volume
    """Where a storage keeps its partitions."""

    meta: Volume | None = None
    """Where it keeps its control file: little, seldom written. Left out, that is with the data."""

    on_scale_down: Disposal = Disposal.KEEP
    """What happens to the volumes of storages that were retired."""

    on_deletion: Disposal = Disposal.KEEP
    """What happens to all volumes when the cluster is deleted."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "has(self.meta) == has(oldSelf.meta)",
            "volumes.meta cannot be added or taken away, because a storage's control file stays "
            "where it was begun: make a new StoragePool instead",
        ),
    )


class StoragePoolSpec(Model):
    """What a pool shall be."""

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
    """How many pods share the pool's copy of the partitions."""

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
    """How large a file of the log becomes before the next one is begun."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.port != self.adminPort && self.port != self.httpPort "
            "&& self.adminPort != self.httpPort",
            "port, adminPort and httpPort must all differ",
        ),
        rule(
            "!isQuantity(self.volumes.data.size) || "
            "quantity(self.volumes.data.size).asApproximateFloat() >= double(self.segmentBytes)",
            "volumes.data.size is less than one file of the log: raise it, or lower segmentBytes",
        ),
    )


class PoolStatus(Model):
    """What has become of a pool."""

    observed_generation: int = 0
    conditions: Conditions = ()
    cluster: str = ""
    """The WaltzCluster that uses it."""

    group: int | None = None
    """The id of its replica group in ZooKeeper."""

    storages: str = ""
    """How many storages serve their partitions, of how many."""

    message: str = ""


class StoragePool(Model):
    """One replica group: its storages together hold one full copy of all partitions."""

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
            "the pool's name becomes part of its pods' host names: small letters, digits and "
            "hyphens only",
        ),
    )
