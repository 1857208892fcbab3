"""`ZooKeeper` in a WaltzCluster: an ensemble that the operator runs, or an external one. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from waltz_operator.core.resources.model import Model, checked, immutable, pattern_rule, rule
from waltz_operator.core.resources.parts import (
    QUANTITY_RULE,
    Disposal,
    Quantity,
    Resources,
    Scheduling,
    Volume,
)

_ADDRESS = r"([^\s,/:\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}"
_ADDRESSES = rf"^{_ADDRESS}(,{_ADDRESS})*$"
_ZNODE = r"^(/[^/\s]+)+$"


class ManagedZooKeeper(Model):
    """A ZooKeeper ensemble that the operator runs for this cluster alone."""

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
                    "may lose data",
                ),
            ),
        ),
    ] = 3
    """The number of ZooKeeper members, 1 or 3. It cannot be changed."""

    volume: Volume = Volume(size="5Gi")
    """The volume of each member. Its size cannot be changed."""

    resources: Resources = Resources(requests={"cpu": "50m", "memory": "384Mi"})
    """The resource requests and limits of each member. If unset, 50m of CPU and 384Mi of memory are
    requested, which is enough for the default heap, and there are no limits."""

    scheduling: Scheduling = Scheduling()
    """The nodes on which the members may run. The zone cannot be changed."""

    heap: Annotated[
        Quantity,
        Field(
            json_schema_extra=checked(
                QUANTITY_RULE,
                rule(
                    "!isQuantity(self) || !quantity(self).isLessThan(quantity('16Mi'))",
                    "zookeeper.managed.heap must be at least 16Mi, such as 256Mi",
                ),
            )
        ),
    ] = "256Mi"
    """The maximum heap size of Java in each member, such as `256Mi`."""

    on_deletion: Disposal = Disposal.KEEP
    """What happens to the volumes when the cluster is deleted. `Delete` applies only if every pool
    has `volumes.onDeletion: Delete`: a kept log could not be opened without the metadata."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "!('memory' in self.resources.limits) || !isQuantity(self.heap) "
            "|| !isQuantity(self.resources.limits['memory']) "
            "|| quantity(self.heap).isLessThan(quantity(self.resources.limits['memory']))",
            "zookeeper.managed.heap must be less than resources.limits.memory: raise the limit, or "
            "lower the heap",
        ),
        rule(
            "self.scheduling.zone == oldSelf.scheduling.zone",
            "zookeeper.managed.scheduling.zone cannot change, because the volumes belong to a zone",
        ),
        rule(
            "!isQuantity(self.volume.size) || !isQuantity(oldSelf.volume.size) "
            "|| quantity(self.volume.size) == quantity(oldSelf.volume.size)",
            "zookeeper.managed.volume.size cannot change: the operator resizes only the volumes of "
            "StoragePools",
        ),
    )


class ZooKeeperTls(Model):
    """TLS of the connections to an external ZooKeeper."""

    secret_name: Annotated[str, Field(min_length=1, max_length=253)]
    """A secret with ca.crt, by which the certificates of ZooKeeper are verified."""

    client_certificate: bool = True
    """Whether the secret also has tls.crt and tls.key, which are presented to ZooKeeper."""

    server_name: Annotated[str, Field(max_length=253)] = ""
    """The name that the certificates of ZooKeeper must have. If empty, the host of the
    connection."""


class ZooKeeperAuthentication(Model):
    """The identity in ZooKeeper of the operator and the servers, which write the metadata."""

    secret_name: Annotated[str, Field(max_length=253)] = ""
    """A secret with the key `credentials`, whose value is one line, `user:password`. Set either
    this field or `certificate`."""

    certificate: bool = False
    """Whether the identity is the subject of the certificate in the secret of `tls`."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "(self.secretName != '') != self.certificate",
            "set exactly one of zookeeper.external.authentication.secretName and .certificate",
        ),
    )


class ExternalZooKeeper(Model):
    """A ZooKeeper ensemble that the operator does not run."""

    connect_string: Annotated[
        str,
        Field(
            pattern=_ADDRESSES,
            max_length=2000,
            json_schema_extra=checked(
                pattern_rule(
                    _ADDRESSES,
                    "zookeeper.external.connectString is host:port of each member, separated by "
                    "commas: zk-0.zk:2181,[2001:db8::1]:2181; a path goes into zookeeper.root",
                )
            ),
        ),
    ]
    """The `host:port` of each member of the ensemble, separated by commas, without a path."""

    tls: ZooKeeperTls | None = None
    """TLS of the connections to ZooKeeper. If unset, the connections are plaintext."""

    authentication: ZooKeeperAuthentication | None = None
    """The identity of the operator and the servers in ZooKeeper. If unset, every process that
    reaches ZooKeeper can change the cluster's metadata."""

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        """Check ``RULES``; the API server may have an older CRD without these rules."""
        if self.authentication is not None and self.tls is None:
            raise ValueError("zookeeper.external.authentication needs zookeeper.external.tls")
        if (
            self.authentication is not None
            and self.authentication.certificate
            and self.tls is not None
            and not self.tls.client_certificate
        ):
            raise ValueError(
                "zookeeper.external.authentication.certificate needs tls.clientCertificate"
            )
        return self

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "!has(self.authentication) || has(self.tls)",
            "zookeeper.external.authentication needs zookeeper.external.tls: without TLS, the "
            "password would be sent in plaintext",
        ),
        rule(
            "!has(self.authentication) || !self.authentication.certificate || !has(self.tls) "
            "|| self.tls.clientCertificate",
            "zookeeper.external.authentication.certificate needs a certificate: set "
            "tls.clientCertificate to true",
        ),
    )


class ZooKeeper(Model):
    """The ZooKeeper that stores the cluster's metadata."""

    managed: ManagedZooKeeper | None = None
    """A ZooKeeper ensemble that the operator runs for this cluster alone. Set either this field or
    `external`."""

    external: ExternalZooKeeper | None = None
    """A ZooKeeper ensemble that the operator does not run. Set either this field or `managed`."""

    root: Annotated[
        str,
        Field(
            pattern=_ZNODE,
            max_length=200,
            json_schema_extra=immutable(
                "zookeeper.root cannot change: it holds the cluster's metadata",
                pattern_rule(
                    _ZNODE, "zookeeper.root is a path that begins with a slash: /waltz/orders"
                ),
                rule(
                    "!self.matches(r'^/zookeeper(/|$)|/[.][.]?(/|$)')",
                    "zookeeper.root uses a name that ZooKeeper reserves: take another, such as "
                    "/waltz/orders",
                ),
            ),
        ),
    ] = "/waltz"
    """The cluster's root znode. In an external ZooKeeper no other cluster may use it."""

    session_timeout_seconds: Annotated[int, Field(ge=2, le=120)] = 10
    """The ZooKeeper session timeout of servers and storages, in seconds. A server without contact
    to ZooKeeper for this long loses its partitions to other servers."""

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        """Check the first of ``RULES``; the API server may have an older CRD without this rule."""
        if (self.managed is None) == (self.external is None):
            raise ValueError("set exactly one of zookeeper.managed and zookeeper.external")
        return self

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "has(self.managed) != has(self.external)",
            "set exactly one of zookeeper.managed and zookeeper.external",
        ),
        rule(
            "has(self.managed) == has(oldSelf.managed)",
            "a cluster cannot change from a managed ZooKeeper to an external one, or back: its "
            "metadata would be lost",
        ),
    )
