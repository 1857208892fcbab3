"""`access` in a WaltzCluster: connections from outside of the Kubernetes cluster. Pure."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from waltz_operator.core.resources.model import Model, checked, pattern_rule, rule

# A name or an IPv4 address, an IPv6 address, or nothing.
_HOST = r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[0-9a-fA-F]*:[0-9a-fA-F:.]*)?$"
_BYTE, _WORD = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])", r"[0-9a-fA-F]{1,4}"
_IPV4_RANGE = rf"({_BYTE}\.){{3}}{_BYTE}/(3[0-2]|[12]?[0-9])"
# In an IPv6 address, `::` stands for at least one word. So at most seven words are written: up to
# ``before`` words before it, and the others after it.
_SHORT_IPV6 = "|".join(
    rf"({_WORD}:){{1,{before}}}(:{_WORD}){{1,{7 - before}}}" for before in range(1, 7)
)
_IPV6 = rf"({_WORD}:){{7}}{_WORD}|({_WORD}:){{1,7}}:|:(:{_WORD}){{1,7}}|::|{_SHORT_IPV6}"
_IPV6_RANGE = rf"({_IPV6})/(12[0-8]|1[01][0-9]|[1-9]?[0-9])"
# A pattern, because Kubernetes 1.29 lacks the function isCIDR of the Common Expression Language.
_RANGE = rf"^({_IPV4_RANGE}|{_IPV6_RANGE})$"

_DNS_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_ANNOTATION = rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
_MAX_ANNOTATION_PREFIX = 253
"""The largest number of characters of the domain before the slash in an annotation's name."""

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
    """The type of the Services: one for each server, with `storages` one for each storage, and with
    `openZooKeeper` one for ZooKeeper. A Service of type `NodePort` has a port on every node, one of
    type `LoadBalancer` has a load balancer, too."""

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
    """The name or the IP address by which clients reach the nodes. It is set only with type
    NodePort, which requires it: the operator does not choose a node by itself. The certificates
    that the operator or cert-manager issues are valid for this host, too."""

    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]],
        Field(
            max_length=32,
            json_schema_extra=checked(
                rule(
                    f"self.all(key, key.matches(r'{_ANNOTATION}') && "
                    f"key.split('/')[0].size() <= {_MAX_ANNOTATION_PREFIX})",
                    "a name in access.outside.annotations has an optional domain with a slash, and "
                    "up to 63 letters, digits, hyphens, underscores and dots",
                )
            ),
        ),
    ] = Field(default={})
    """Annotations of the Services, which some controllers of load balancers read. If empty, none
    are added."""

    source_ranges: Annotated[tuple[SourceRange, ...], Field(max_length=64)] = ()
    """The IP addresses from which clients may connect, as ranges such as `10.0.0.0/8`. If empty,
    clients may connect from everywhere. Services of type LoadBalancer get the ranges as
    `loadBalancerSourceRanges`. Such a Service also has a port on every node, and the ranges do not
    limit connections to it. The NetworkPolicies of servers, storages and ZooKeeper limit them if
    `externalTrafficPolicy` is Local and `networkPolicies` is true: then only pods, and clients in
    these ranges, can connect to the ports of the Services. So `sourceRanges` requires these two
    settings with type NodePort, and with a managed ZooKeeper."""

    external_traffic_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    """With `Cluster`, every node forwards connections to the pod, which does not see the address of
    the client. With `Local`, only the node of the pod accepts connections, so with type NodePort
    the `host` must lead to this node."""

    storages: bool = True
    """Whether the storages have Services, too. Administrators need them, and Spark if it reads
    replicas; other clients need only the servers."""

    admin_ports: bool = False
    """Whether the Services of the storages have the port for administration, too."""

    # `Model` makes the name in the resource from this name. From `open_zookeeper` it would make
    # `openZookeeper` instead of `openZooKeeper`.
    open_zoo_keeper: bool = False
    """Whether a managed ZooKeeper has a Service, too. It has neither TLS nor authentication: every
    process that reaches it can read and change the metadata of the cluster, so restrict the
    connections by `sourceRanges` or in your network. A managed ZooKeeper requires `true`: clients
    read the addresses of servers from ZooKeeper. An external one requires `false`."""

    # `WaltzClusterSpec` has the rules about `networkPolicies`, which is not a field of this model.
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
            "self.sourceRanges.size() == 0 || !self.openZooKeeper "
            "|| self.externalTrafficPolicy == 'Local'",
            "access.outside.sourceRanges with openZooKeeper needs externalTrafficPolicy Local: "
            "otherwise clients of other addresses reach ZooKeeper by the ports of nodes",
        ),
        rule(
            "!self.adminPorts || self.storages",
            "access.outside.adminPorts needs storages: set access.outside.storages to true",
        ),
    )

    @property
    def policies_restrict_clients(self) -> bool:
        """Whether NetworkPolicies restrict clients to the source ranges.

        They can only with the policy Local: otherwise pods see the addresses of nodes.
        """
        return bool(self.source_ranges) and self.external_traffic_policy is TrafficPolicy.LOCAL

    @property
    def normalized_source_ranges(self) -> tuple[str, ...]:
        """The source ranges with their host bits set to 0: 10.1.2.3/8 becomes 10.0.0.0/8.

        An API server may refuse a range that has host bits.
        """
        return tuple(str(ipaddress.ip_network(each, strict=False)) for each in self.source_ranges)


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
    """The number of servers and storages with an address for clients outside, of all that need
    one, such as `5/5`. It is empty without `access.outside`."""

    pending: str = ""
    """The Services that have no address yet, separated by commas. It is empty if all have one."""
