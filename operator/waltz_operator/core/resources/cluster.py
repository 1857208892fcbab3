"""`WaltzCluster`: a log of so many partitions, the pools that keep it, its servers. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from waltz_operator.core.resources.model import Model, checked, immutable, rule, shape
from waltz_operator.core.resources.parts import (
    Conditions,
    Disposal,
    ObjectMeta,
    ObjectName,
    Port,
    Quantity,
    Resources,
    Scheduling,
    Volume,
)

_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_ADDRESSES = r"^[^\s,/:]+:[0-9]{1,5}(,[^\s,/:]+:[0-9]{1,5})*$"
_ZNODE = r"^(/[^/\s]+)+$"
_MEBIBYTE = 1 << 20


class TlsMode(StrEnum):
    """Who makes the certificates with which the cluster's processes know each other."""

    OPERATOR = "Operator"
    CERT_MANAGER = "CertManager"
    SECRET = "Secret"
    NONE = "None"


class IssuerRef(Model):
    """An issuer of cert-manager."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"


class Tls(Model):
    """How connections inside the cluster, and those of clients, are secured."""

    mode: Annotated[
        TlsMode,
        Field(
            json_schema_extra=immutable(
                "tls.mode cannot change: half of the processes could not talk to the other half"
            )
        ),
    ] = TlsMode.OPERATOR

    issuer_ref: IssuerRef | None = None
    """With CertManager: who issues the certificates."""

    secret_name: Annotated[str, Field(max_length=253)] = ""
    """With Secret: one that has ca.crt, tls.crt and tls.key, as cert-manager makes them."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "(self.mode == 'CertManager') == has(self.issuerRef)",
            "tls.issuerRef goes with tls.mode CertManager, and only with it: name an Issuer or a "
            "ClusterIssuer",
        ),
        rule(
            "(self.mode == 'Secret') == (self.secretName != '')",
            "tls.secretName goes with tls.mode Secret, and only with it: name a secret that has "
            "ca.crt, tls.crt and tls.key",
        ),
    )


class ManagedZooKeeper(Model):
    """A ZooKeeper that belongs to this cluster alone."""

    members: Annotated[
        int,
        Field(
            ge=1,
            le=3,
            json_schema_extra=checked(
                rule("self == 1 || self == 3", "a managed ZooKeeper has 1 or 3 members"),
                rule(
                    "self == oldSelf",
                    "zookeeper.managed.members cannot change: an ensemble that grows or shrinks "
                    "may forget what it knew",
                ),
            ),
        ),
    ] = 3

    volume: Volume = Volume(size="5Gi")
    resources: Resources = Resources()
    scheduling: Scheduling = Scheduling()
    heap: Quantity = "256Mi"
    """The memory that Java may use."""

    on_deletion: Disposal = Disposal.KEEP
    """What happens to the volumes when the cluster is deleted."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "!('memory' in self.resources.limits) || !isQuantity(self.heap) "
            "|| !isQuantity(self.resources.limits['memory']) "
            "|| quantity(self.heap).isLessThan(quantity(self.resources.limits['memory']))",
            "zookeeper.managed.heap takes all of resources.limits.memory: raise the limit, or "
            "lower the heap",
        ),
    )


class ExternalZooKeeper(Model):
    """A ZooKeeper that somebody else runs."""

    connect_string: Annotated[
        str,
        Field(
            pattern=_ADDRESSES,
            max_length=2000,
            json_schema_extra=checked(
                shape(
                    _ADDRESSES,
                    "zookeeper.external.connectString is host:port of each member, with commas "
                    "between them: zk-0.zk:2181,zk-1.zk:2181; a path goes into zookeeper.root",
                )
            ),
        ),
    ]
    """`host:port` of its members, with commas between them and no path behind."""


class ZooKeeper(Model):
    """Where the cluster's metadata is."""

    managed: ManagedZooKeeper | None = None
    external: ExternalZooKeeper | None = None

    root: Annotated[
        str,
        Field(
            pattern=_ZNODE,
            max_length=200,
            json_schema_extra=immutable(
                "zookeeper.root cannot change: everything that is known of the cluster is there",
                shape(_ZNODE, "zookeeper.root is a path that begins with a slash: /waltz/orders"),
            ),
        ),
    ] = "/waltz"
    """The cluster's znode; with an external ZooKeeper, one that no other cluster has."""

    session_timeout_seconds: Annotated[int, Field(ge=2, le=120)] = 10
    """After how long without contact a server counts as gone."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "has(self.managed) != has(self.external)",
            "zookeeper needs exactly one of managed and external",
        ),
        rule(
            "has(self.managed) == has(oldSelf.managed)",
            "a cluster cannot change from a managed ZooKeeper to an external one, or back: what it "
            "knows would be lost",
        ),
    )


class Caches(Model):
    """What servers keep in memory."""

    feed_bytes: Annotated[int, Field(ge=_MEBIBYTE, le=1 << 40)] = 64 * _MEBIBYTE
    data_bytes: Annotated[int, Field(ge=_MEBIBYTE, le=1 << 40)] = 128 * _MEBIBYTE


class Servers(Model):
    """The processes that clients talk to."""

    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    port: Port = 6100
    http_port: Port = 6101
    caches: Caches = Caches()
    resources: Resources = Resources()
    scheduling: Scheduling = Scheduling()

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule("self.port != self.httpPort", "servers.port and servers.httpPort must differ"),
        rule(
            "!('memory' in self.resources.limits) "
            "|| !isQuantity(self.resources.limits['memory']) "
            "|| quantity(self.resources.limits['memory']).asApproximateFloat() "
            ">= double(self.caches.feedBytes + self.caches.dataBytes)",
            "servers.resources.limits.memory is less than the caches need: raise it, or lower "
            "servers.caches",
        ),
    )


class Images(Model):
    """What the pods run."""

    server: Annotated[str, Field(min_length=1, max_length=500)] = "waltz-server:0.1.0"
    storage: Annotated[str, Field(min_length=1, max_length=500)] = "waltz-storage:0.1.0"
    zookeeper: Annotated[str, Field(min_length=1, max_length=500)] = "waltz-zookeeper:0.1.0"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()


class WaltzClusterSpec(Model):
    """What a cluster shall be."""

    partitions: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            json_schema_extra=immutable(
                "partitions cannot change: which partition a client's data is in depends on it. "
                "Make a new WaltzCluster"
            ),
        ),
    ]
    """How many logs there are."""

    pools: Annotated[
        tuple[ObjectName, ...],
        Field(
            min_length=1,
            max_length=9,
            json_schema_extra=checked(
                rule(
                    "self.size() % 2 == 1",
                    "pools must be an odd number: an even one survives no more failures than one "
                    "pool less",
                ),
                rule(
                    "self.all(name, self.exists_one(other, other == name))",
                    "pools names one twice: each is one copy of the partitions",
                ),
                rule(
                    "oldSelf.all(name, name in self)",
                    "a pool cannot leave a cluster yet, because its copy would be lost: leave it "
                    "in pools",
                ),
            ),
        ),
    ]
    """The StoragePools of the same namespace, each of which keeps one copy."""

    zookeeper: ZooKeeper
    servers: Servers = Servers()
    images: Images = Images()
    tls: Tls = Tls()

    cluster_key: (
        Annotated[
            str,
            Field(
                pattern=_UUID,
                json_schema_extra=immutable(
                    "clusterKey cannot change: volumes belong to one cluster",
                    shape(
                        _UUID,
                        "clusterKey is a UUID in small letters, as status.clusterKey of the "
                        "earlier cluster shows it",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """To take over an earlier cluster with its volumes and znodes: its key. Not set: a new one."""

    paused: bool = False
    """Whether the operator leaves the cluster as it is."""

    network_policies: bool = True
    """Whether only the cluster's own processes may talk to storages and to a managed ZooKeeper."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "!has(oldSelf.clusterKey) || has(self.clusterKey)",
            "clusterKey cannot be taken back: volumes belong to one cluster",
        ),
    )


class ClusterStatus(Model):
    """What has become of a cluster."""

    observed_generation: int = 0
    conditions: Conditions = ()
    cluster_key: str = ""
    """What its volumes and processes know each other by."""

    connect_string: str = ""
    """ZooKeeper, as clients in the same Kubernetes reach it."""

    partitions: str = ""
    """How many partitions have their quorum, of how many."""

    storages: str = ""
    """How many storages answer, of how many."""

    servers: str = ""
    """How many servers have joined, of how many."""

    message: str = ""
    """What is being waited for, or what is wrong."""


class WaltzCluster(Model):
    """A durable, totally ordered log of transactions."""

    metadata: ObjectMeta
    spec: WaltzClusterSpec
    status: ClusterStatus = ClusterStatus()

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.metadata.name.size() <= 40",
            "the cluster's name becomes part of its pods' names: at most 40 characters",
        ),
        rule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "the cluster's name becomes part of its pods' host names: small letters, digits and "
            "hyphens only",
        ),
    )
