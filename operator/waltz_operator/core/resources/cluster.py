"""`WaltzCluster`: the partitions of a log, its pools, servers, ZooKeeper and TLS. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from waltz_operator.core.resources.adoption import ADOPTION_RULES, Adoption
from waltz_operator.core.resources.model import Model, checked, immutable, pattern_rule, rule
from waltz_operator.core.resources.outside import Access, OutsideStatus
from waltz_operator.core.resources.parts import (
    Conditions,
    ObjectMeta,
    ObjectName,
    RestartTime,
)
from waltz_operator.core.resources.servers import Servers
from waltz_operator.core.resources.zookeeper import ZooKeeper

_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


class TlsMode(StrEnum):
    """The issuer of the certificates: the operator, cert-manager, or a user by a secret.

    With None the cluster does not use TLS.
    """

    OPERATOR = "Operator"
    CERT_MANAGER = "CertManager"
    SECRET = "Secret"
    NONE = "None"


class IssuerRef(Model):
    """A cert-manager issuer."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The name of the issuer."""

    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    """The kind of the issuer: an Issuer is in the cluster's namespace, a ClusterIssuer in none."""


class Tls(Model):
    """TLS of all connections, including the connections of clients."""

    mode: Annotated[
        TlsMode,
        Field(
            json_schema_extra=immutable(
                "tls.mode cannot change: processes with the old and the new mode could not connect "
                "to each other"
            )
        ),
    ] = TlsMode.OPERATOR
    """The issuer of the certificates: the operator, cert-manager, or you by a secret. With `None`,
    connections are plaintext. The mode cannot be changed."""

    issuer_ref: IssuerRef | None = None
    """With mode CertManager: the issuer of the certificates."""

    secret_name: Annotated[str, Field(max_length=253)] = ""
    """With mode Secret: a secret with ca.crt, tls.crt and tls.key, as cert-manager writes them."""

    rotation_step_seconds: Annotated[int, Field(ge=0, le=30 * 86_400)] = 600
    """With mode Operator: for how many seconds each of the first two steps of a rotation of the
    certificate authority lasts at least. In this time clients must load the changed secret."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "(self.mode == 'CertManager') == has(self.issuerRef)",
            "tls.issuerRef is required with tls.mode CertManager, and allowed only with it: name "
            "an Issuer or a ClusterIssuer",
        ),
        rule(
            "(self.mode == 'Secret') == (self.secretName != '')",
            "tls.secretName is required with tls.mode Secret, and allowed only with it: name a "
            "secret that has ca.crt, tls.crt and tls.key",
        ),
    )


class Images(Model):
    """The images of the pods."""

    server: Annotated[str, Field(min_length=1, max_length=500)] = "waltz-server:0.1.0"
    """The image of the servers."""

    storage: Annotated[str, Field(min_length=1, max_length=500)] = "waltz-storage:0.1.0"
    """The image of the storages."""

    zookeeper: Annotated[str, Field(min_length=1, max_length=500)] = "waltz-zookeeper:0.1.0"
    """The image of a managed ZooKeeper's members."""

    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When a node pulls the images."""

    pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    """The names of the secrets for pulling the images. If empty, no secrets."""


class WaltzClusterSpec(Model):
    """The desired state of a cluster."""

    partitions: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            json_schema_extra=immutable(
                "partitions cannot change, because clients select a partition by the number of "
                "partitions: create a new WaltzCluster"
            ),
        ),
    ]
    """The number of partitions of the log. It cannot be changed."""

    pools: Annotated[
        tuple[ObjectName, ...],
        Field(
            max_length=9,
            json_schema_extra=checked(
                rule(
                    "self.all(name, self.exists_one(other, other == name))",
                    "pools contains a name twice: each pool holds one copy of the partitions, so "
                    "name different pools",
                ),
            ),
        ),
    ]
    """The StoragePools, in the same namespace. Each holds one copy of all partitions. A pool that
    is added gets its copy from the other pools. A pool that is removed gives its copy up after the
    other copies have proven to be equal. Only a cluster with `adopt` may have no pools."""

    allow_fewer_copies: bool = False
    """Whether fewer than 3 pools may remain when a pool is removed. Two copies survive no failure
    without an interruption."""

    zookeeper: ZooKeeper
    """The ZooKeeper that stores the cluster's metadata: set exactly one of `managed` and
    `external`."""

    servers: Servers = Servers()
    """The servers, to which clients connect."""

    images: Images = Images()
    """The images of the pods."""

    tls: Tls = Tls()
    """TLS of all connections, including the connections of clients."""

    access: Access = Access()
    """Connections of clients."""

    cluster_key: (
        Annotated[
            str,
            Field(
                pattern=_UUID,
                json_schema_extra=immutable(
                    "clusterKey cannot change: volumes belong to one cluster",
                    pattern_rule(
                        _UUID,
                        "clusterKey is a UUID in lower case, as status.clusterKey of the "
                        "earlier cluster shows it",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """The key of an earlier cluster whose volumes and znodes this cluster uses, as its
    `status.clusterKey` shows it, or of the cluster that `adopt` names, as `waltz cluster key`
    prints it. If unset, the cluster is new."""

    adopt: Adoption | None = None
    """A cluster that runs already, outside of the operator, and that this WaltzCluster takes over
    with its log. It needs `clusterKey` and `zookeeper.external`. It cannot be removed later, nor
    added to a cluster that exists already. If unset, the operator takes over no other cluster."""

    paused: bool = False
    """Whether the operator leaves the cluster unchanged, and repairs nothing. If the resource is
    deleted, the operator deletes the cluster all the same."""

    restarted_at: RestartTime = ""
    """A time in UTC, such as `2026-01-31T12:00:00Z`. A new value restarts all pods of the cluster,
    one storage and one ZooKeeper member at a time. If empty, no restart was requested."""

    network_policies: bool = True
    """Whether NetworkPolicies limit connections to storages and to a managed ZooKeeper. Only
    servers and the operator may connect to a storage's port for servers, and clients outside if
    `access.outside.storages` opens it. Only the operator and the cluster's storages, which copy
    replicas from each other, may connect to its admin port, and clients outside if
    `access.outside.adminPorts` opens it. A pod with the label `waltz.dev/administers` may connect
    to both ports. Only ZooKeeper's members may connect to ZooKeeper's peer ports. The other ports
    are open, unless `access.outside.sourceRanges` limits the clients outside."""

    @model_validator(mode="after")
    def _check_adoption(self) -> Self:
        """Check ``adopt`` and ``pools`` by two of ``RULES``; an older CRD does not have them."""
        if self.adopt is None:
            if not self.pools:
                raise ValueError("spec.pools is empty: name at least one StoragePool")
        elif self.cluster_key is None or self.zookeeper.external is None:
            raise ValueError("spec.adopt needs spec.clusterKey and spec.zookeeper.external")
        return self

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.pools.size() > 0 || has(self.adopt)",
            "pools is empty: name at least one StoragePool, which holds one copy of the partitions",
        ),
        *ADOPTION_RULES,
        rule(
            "!self.servers.accessRequired || self.tls.mode != 'None'",
            "servers.accessRequired needs TLS, by which servers know their clients: choose another "
            "tls.mode",
        ),
        rule(
            "!has(self.access.outside) || self.tls.mode != 'None'",
            "access.outside needs TLS, without which servers and storages obey every client: "
            "choose another tls.mode",
        ),
        rule(
            "!has(self.access.outside) || self.tls.mode != 'Secret' "
            "|| !self.access.outside.storages",
            "with tls.mode Secret, storages obey every client with a certificate of the authority: "
            "set access.outside.storages to false",
        ),
        rule(
            "!has(self.access.outside) "
            "|| has(self.zookeeper.managed) == self.access.outside.openZooKeeper",
            "access.outside: a managed ZooKeeper has neither TLS nor authentication: set "
            "openZooKeeper to true to let every client outside change the metadata, or use "
            "zookeeper.external, for which openZooKeeper is false",
        ),
        rule(
            "!has(self.access.outside) || self.access.outside.sourceRanges.size() == 0 "
            "|| self.networkPolicies || (self.access.outside.type == 'LoadBalancer' "
            "&& !self.access.outside.openZooKeeper)",
            "access.outside.sourceRanges needs networkPolicies: with type NodePort or a managed "
            "ZooKeeper, only NetworkPolicies refuse the clients of other addresses",
        ),
        rule(
            "!has(oldSelf.clusterKey) || has(self.clusterKey)",
            "clusterKey cannot be removed: volumes belong to one cluster",
        ),
        # An adopted cluster may have copies on foreign storages, which are in no pool. The spec
        # does not show them, so these rules exempt adopted clusters. Instead, the plan checks each
        # removal by the copies that exist (`planning.shape_removal`).
        rule(
            "self.pools.size() >= 3 || self.pools.size() >= oldSelf.pools.size() "
            "|| self.allowFewerCopies || has(self.adopt)",
            "pools would have fewer than 3 copies: set allowFewerCopies to true to allow that",
        ),
        rule(
            "self.pools.size() > 1 || oldSelf.pools.size() == 1 || has(self.adopt)",
            "a cluster of several copies cannot be reduced to one, because one copy is no quorum "
            "of two: keep 2 pools",
        ),
        rule(
            "oldSelf.pools.size() > 1 || self.pools.size() != 2 || has(self.adopt)",
            "a single copy cannot become two, because one copy is no quorum of two: name 3 pools",
        ),
        rule(
            "oldSelf.pools.size() > 1 || oldSelf.pools.all(name, name in self.pools) "
            "|| has(self.adopt)",
            "the only pool cannot be replaced, because its copy would be lost: add two pools "
            "first, and remove it when they have their copies",
        ),
        rule(
            "self.paused || !has(self.zookeeper.external) || !has(oldSelf.zookeeper.external) || "
            "self.zookeeper.external.connectString == oldSelf.zookeeper.external.connectString",
            "zookeeper.external.connectString can change only while spec.paused is true: the "
            "operator then compares the cluster's key when you set paused to false",
        ),
    )


class ClusterStatus(Model):
    """The observed state of a cluster."""

    observed_generation: int = 0
    """The last generation of the spec for which the operator had no step left."""

    conditions: Conditions = ()
    """The conditions Ready, Healthy, Reconciled, Updated, Spread, Changing, Rotating,
    Foreign and UpdateAvailable."""

    cluster_key: str = ""
    """The key by which volumes and processes of another cluster are refused."""

    connect_string: str = ""
    """The address of ZooKeeper for clients in the same Kubernetes cluster."""

    outside: OutsideStatus = OutsideStatus()
    """How clients outside of the Kubernetes cluster connect."""

    partitions: str = ""
    """The number of partitions that have a quorum and a server, and of all partitions, as `3/4`."""

    storages: str = ""
    """The number of storages that answer, and of all storages."""

    servers: str = ""
    """The number of servers that have joined, and of all servers."""

    updated: str = ""
    """The number of pods that run the current version of their object, and of all pods."""

    change: str = ""
    """The change of pools, groups or storages that is under way, such as `pool d: partition 17 of
    64`. It is empty if none is."""

    rotated_ca: str = ""
    """The value of the annotation `waltz.dev/rotate-ca` at the beginning of the last complete
    rotation of the certificate authority. It is empty if no rotation was requested."""

    message: str = ""
    """The problems that a person must solve; if there are none, the step that failed; if none did,
    the reasons why the operator waits; if there are none, the rotation of the certificate
    authority; if there is none either, the next step."""


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
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the cluster's name becomes part of its pods' host names: lower-case letters, digits "
            "and hyphens only, and a letter first",
        ),
        rule(
            "self.spec.pools.size() % 2 == 1 || has(self.spec.adopt) || (has(self.status) "
            "&& has(self.status.clusterKey) && self.status.clusterKey != '')",
            "the number of pools of a new cluster must be odd: for example, 4 pools survive no "
            "more failures than 3",
        ),
        rule(
            "!has(self.spec.clusterKey) || has(oldSelf.spec.clusterKey) || !has(self.status) || "
            "!has(self.status.clusterKey) || self.status.clusterKey in ['', self.spec.clusterKey]",
            "clusterKey cannot be added to a cluster that has another key already, as "
            "status.clusterKey shows: create a new WaltzCluster",
        ),
        rule(
            "!has(self.spec.adopt) || has(oldSelf.spec.adopt) || !has(self.status) || "
            "!has(self.status.clusterKey) || self.status.clusterKey == ''",
            "adopt cannot be added to a cluster that exists already, as status.clusterKey shows: "
            "to take over another cluster, create a WaltzCluster of its own for it",
        ),
    )
