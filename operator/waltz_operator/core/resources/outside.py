"""`access` in a WaltzCluster: connections from outside of the Kubernetes cluster. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from waltz_operator.core.resources.model import Model, checked, pattern_rule, rule

_HOST = r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[0-9a-fA-F]*:[0-9a-fA-F:.]*)?$"
_RANGE = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"

SourceRange = Annotated[
    str,
    Field(
        pattern=_RANGE,
        max_length=50,
        json_schema_extra=checked(
            pattern_rule(
                _RANGE, "a source range is an address and a prefix length, such as 10.0.0.0/8"
            )
        ),
    ),
]
"""A range of IP addresses, such as ``10.0.0.0/8`` or ``2001:db8::/32``."""


class OutsideType(StrEnum):
    """The type of the Services for access from outside."""

    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class TrafficPolicy(StrEnum):
    """The field ``externalTrafficPolicy`` of a Service.

    With Cluster, every node forwards connections to the pod, and the pod sees the address of the
    node. With Local, only the node of the pod accepts connections, and the pod sees the address of
    the client.
    """

    CLUSTER = "Cluster"
    LOCAL = "Local"


class OutsideAccess(Model):
    """Services by which clients outside of the Kubernetes cluster reach the cluster."""

    type: OutsideType
    """The type of the Services, of which each server and each storage has one. With `NodePort`,
    each has a port of every node; with `LoadBalancer`, each has a load balancer."""

    host: Annotated[
        str,
        Field(
            pattern=_HOST,
            max_length=253,
            json_schema_extra=checked(
                pattern_rule(
                    _HOST,
                    "access.outside.host is a name or an IP address without a port, such as "
                    "node-1.example.com",
                )
            ),
        ),
    ] = ""
    """With type NodePort, which requires it: the name or the IP address by which clients reach the
    nodes. The operator does not choose a node by itself. It becomes a name of the certificates that
    the operator or cert-manager issues."""

    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)
    ] = Field(default={})
    """Annotations of the Services, which some controllers of load balancers read. If empty, none
    are added."""

    source_ranges: Annotated[tuple[SourceRange, ...], Field(max_length=64)] = ()
    """The IP addresses from which clients may connect, as ranges such as `10.0.0.0/8`. They are
    `loadBalancerSourceRanges` of the Services of type LoadBalancer. With externalTrafficPolicy
    Local they are also in the NetworkPolicies, which admit all pods, too. If empty, clients may
    connect from everywhere."""

    external_traffic_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    """With `Cluster`, every node forwards connections to the pod, which does not see the address of
    the client. With `Local`, only the node of the pod accepts connections, so type NodePort then
    needs a `host` that leads to this node."""

    storages: bool = True
    """Whether the storages have Services, too. Administrators need them, and Spark if it reads
    replicas; other clients need only the servers."""

    admin_ports: bool = False
    """Whether the Services of the storages have the port for administration, too."""

    open_zoo_keeper: bool = False
    """Whether a managed ZooKeeper has a Service, too. It has neither TLS nor authentication: every
    process that reaches it can read and change the metadata of the cluster, so restrict the
    connections by `sourceRanges` or in your network. A managed ZooKeeper requires `true`: clients
    read the addresses of servers from ZooKeeper. An external one requires `false`."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "(self.type == 'NodePort') == (self.host != '')",
            "access.outside.host is required with type NodePort, and allowed only with it: name "
            "the host by which clients reach the nodes",
        ),
        rule(
            "self.sourceRanges.size() == 0 || self.type == 'LoadBalancer' "
            "|| self.externalTrafficPolicy == 'Local'",
            "access.outside.sourceRanges with type NodePort needs externalTrafficPolicy Local: "
            "otherwise pods see the addresses of nodes instead of those of the clients",
        ),
        rule(
            "!self.adminPorts || self.storages",
            "access.outside.adminPorts needs storages: set access.outside.storages to true",
        ),
    )

    @property
    def sees_clients(self) -> bool:
        """Whether the addresses of clients are restricted, and NetworkPolicies can see them."""
        return bool(self.source_ranges) and self.external_traffic_policy is TrafficPolicy.LOCAL


class Access(Model):
    """Connections of clients."""

    outside: OutsideAccess | None = None
    """Access from outside of the Kubernetes cluster: Services, and the addresses that clients with
    `access="outside"` use. If unset, clients must reach the addresses of pods."""


class OutsideStatus(Model):
    """How clients outside of the Kubernetes cluster connect."""

    connect_string: str = ""
    """The address of ZooKeeper for clients outside. It is empty without `access.outside`, and while
    the address is not known yet."""

    server_name: str = ""
    """The name in the certificates of servers and storages that clients can verify instead of the
    host. It is empty without `access.outside`."""

    addresses: str = ""
    """The number of servers and storages that clients outside can reach, and of all that run with a
    Service, such as `5/5`. It is empty without `access.outside`."""

    pending: str = ""
    """The Services that have no address yet, separated by commas. It is empty if all have one."""
