"""Find out which Services clients outside need, and which addresses these Services have. Pure.

*Outside* means outside of the Kubernetes cluster. A *registered address* is the one that a server
or a storage has registered in ZooKeeper. The *outside address* of the process is that of the
Service that leads to it. `planning.outside` writes the outside address into ZooKeeper, where
clients outside read it. The Service of a server leads to the pod that has the *slot* of the
Service: a number that `core.slots` gives to one pod at a time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from waltz.net.core.addresses import join_address
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, address_of, own_metadata
from waltz_operator.core.names import OUTSIDE_LABEL, POOL_LABEL, Component
from waltz_operator.core.objects import (
    Manifest,
    is_ours,
    outside_server_services,
    outside_storage_services,
    outside_zookeeper_service,
)
from waltz_operator.core.observed import LiveObject, ObservedCluster
from waltz_operator.core.planning.shape_objects import retired_pools
from waltz_operator.core.pod_ports import port_of_pod
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.resources.outside import OutsideAccess, OutsideStatus, OutsideType
from waltz_operator.core.slots import (
    ServerPod,
    assign_slots,
    num_slots,
    server_pod,
)

_MAX_NAMED_SERVICES = 3
"""The largest number of Services that a text names."""


@dataclass(frozen=True, slots=True)
class _Port:
    """A port that a process has registered: its address, and the Service that leads to it.

    ``name`` is the name of the port in the Service.
    """

    registered: str
    service: str
    name: str


def wanted_services(desired: DesiredCluster, observed: ObservedCluster) -> Iterator[Manifest]:
    """Yield the Services for access from outside; none if the spec does not want it."""
    cluster, access = desired.cluster, desired.cluster.spec.access.outside
    if access is None:
        return
    slots = range(num_slots(cluster.spec.servers.replicas))
    yield from outside_server_services(cluster, access, slots)
    for pool in _pools(desired, observed, access):
        ordinals = _ordinals(desired, observed, pool)
        yield from outside_storage_services(cluster, access, pool, ordinals)
    if access.open_zoo_keeper and cluster.spec.zookeeper.managed is not None:
        yield outside_zookeeper_service(cluster, access)


def own_services(desired: DesiredCluster, observed: ObservedCluster) -> Iterator[LiveObject]:
    """Yield the existing Services for access from outside that belong to the cluster."""
    for live in observed.of_kind("Service"):
        if is_ours(live, desired.name) and OUTSIDE_LABEL in live["metadata"]["labels"]:
            yield live


def _services_by_name(desired: DesiredCluster, observed: ObservedCluster) -> dict[str, LiveObject]:
    """Return the Services of `own_services` by name."""
    return {live["metadata"]["name"]: live for live in own_services(desired, observed)}


def server_pods(desired: DesiredCluster, observed: ObservedCluster) -> dict[str, LiveObject]:
    """Return the pods of the cluster's servers by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in observed.of_kind("Pod", Component.SERVER)
        if is_ours(pod, desired.name)
    }


def slots_of_servers(
    desired: DesiredCluster, observed: ObservedCluster
) -> Mapping[str, int | None]:
    """Return the slot that each pod of the servers has or gets now, None for a pod without a slot.

    The keys are the names of the pods.
    """
    pods: list[ServerPod] = [server_pod(pod) for pod in server_pods(desired, observed).values()]
    return assign_slots(pods, num_slots(desired.cluster.spec.servers.replicas))


def outside_addresses(desired: DesiredCluster, observed: ObservedCluster) -> dict[str, str]:
    """Return the known outside addresses, by registered address."""
    access = desired.cluster.spec.access.outside
    if access is None:
        return {}
    services = _services_by_name(desired, observed)
    addresses = {}
    for port in _ports(desired, observed, access):
        address = _address(services.get(port.service), access, port.name)
        if address is not None:
            addresses[port.registered] = address
    return addresses


def outside_names(desired: DesiredCluster, observed: ObservedCluster) -> tuple[str, ...]:
    """Return the names and IP addresses by which clients outside reach servers and storages.

    The certificates of the processes are valid for these, besides `names.tls_name`. The address of
    a managed ZooKeeper is left out, because ZooKeeper has no certificate.
    """
    access = desired.cluster.spec.access.outside
    if access is None:
        return ()
    is_node_port = access.type is OutsideType.NODE_PORT
    hosts = {_canonical(access.host)} if is_node_port else _load_balancers(desired, observed)
    return tuple(sorted(hosts - {names.tls_name(desired.name, desired.namespace)}))


def _load_balancers(desired: DesiredCluster, observed: ObservedCluster) -> set[str]:
    """Return the names and IP addresses of the load balancers of servers and storages."""
    return {
        _canonical(host)
        for live in own_services(desired, observed)
        if live["metadata"]["name"] != names.outside_zookeeper(desired.name)
        for host in _load_balancer_hosts(live)
    }


def pending_services(desired: DesiredCluster, observed: ObservedCluster) -> tuple[str, ...]:
    """Return the names of the wanted Services that have no address yet."""
    access = desired.cluster.spec.access.outside
    if access is None:
        return ()
    services = _services_by_name(desired, observed)
    return tuple(
        wanted.key.name
        for wanted in wanted_services(desired, observed)
        if any(
            _address(services.get(wanted.key.name), access, port["name"]) is None
            for port in wanted.body["spec"]["ports"]
        )
    )


def outside_status(desired: DesiredCluster, observed: ObservedCluster) -> OutsideStatus:
    """Return how clients outside connect to the cluster."""
    access = desired.cluster.spec.access.outside
    if access is None:
        return OutsideStatus()
    addresses = outside_addresses(desired, observed)
    # A port for administration is not counted: a storage is reached by its other port.
    ports = [port for port in _ports(desired, observed, access) if port.name != "admin"]
    num_known = sum(port.registered in addresses for port in ports)
    return OutsideStatus(
        connect_string=_connect_string(desired, observed, access),
        server_name=names.tls_name(desired.name, desired.namespace),
        addresses=f"{num_known}/{len(ports)}",
        pending=listed(pending_services(desired, observed)),
    )


def listed(services: tuple[str, ...]) -> str:
    """Return the names of Services as a text, such as ``a, b, c and 4 more``."""
    more = len(services) - _MAX_NAMED_SERVICES
    others = f" and {more} more" if more > 0 else ""
    return ", ".join(services[:_MAX_NAMED_SERVICES]) + others


def _connect_string(
    desired: DesiredCluster, observed: ObservedCluster, access: OutsideAccess
) -> str:
    """Return the address of ZooKeeper for clients outside; empty if it is not known yet."""
    external = desired.cluster.spec.zookeeper.external
    if external is not None:
        return external.connect_string
    service = names.outside_zookeeper(desired.name)
    services = _services_by_name(desired, observed)
    return _address(services.get(service), access, "client") or ""


def _ports(
    desired: DesiredCluster, observed: ObservedCluster, access: OutsideAccess
) -> Iterator[_Port]:
    """Yield the ports that storages and servers have registered, if a Service leads to them."""
    for pool in _pools(desired, observed, access):
        for ordinal in _ordinals(desired, observed, pool):
            address = address_of(pool, ordinal)
            service = names.outside_storage(pool.metadata.name, ordinal)
            yield _Port(address, service, "storage")
            if access.admin_ports:
                host = address.rpartition(":")[0]
                yield _Port(join_address(host, pool.spec.admin_port), service, "admin")
    pods = server_pods(desired, observed)
    for pod, slot in slots_of_servers(desired, observed).items():
        ip = (pods[pod].get("status") or {}).get("podIP")
        if slot is not None and ip:
            address = join_address(
                ip, port_of_pod(pods[pod], "waltz", desired.cluster.spec.servers.port)
            )
            yield _Port(address, names.outside_server(desired.name, slot), "waltz")


def _pools(
    desired: DesiredCluster, observed: ObservedCluster, access: OutsideAccess
) -> tuple[StoragePool, ...]:
    """Return the pools whose storages have Services: those with storages that may be registered."""
    if not access.storages:
        return ()
    retired = retired_pools(desired, observed)
    return tuple(pool for pool in desired.own_pools if pool.metadata.name not in retired)


def _ordinals(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool
) -> tuple[int, ...]:
    """Return the ordinals of the storages that must have Services, ascending.

    These are the storages that the spec wants. A storage that leaves the pool keeps its Service
    while it may be registered.
    """
    name, present = pool.metadata.name, own_metadata(desired, observed)
    registered = None if present is None else present.maps.groups.groups
    leaving = set()
    for live in own_services(desired, observed):
        metadata = live["metadata"]
        # The name of the Service is that of the storage's pod and ``-outside``.
        number = metadata["name"].removesuffix("-outside").rpartition("-")[2]
        if metadata["labels"].get(POOL_LABEL) != name or not number.isdecimal():
            continue
        ordinal = int(number)
        may_be_registered = registered is None or address_of(pool, ordinal) in registered
        if ordinal >= pool.spec.storages and may_be_registered:
            leaving.add(ordinal)
    return (*range(pool.spec.storages), *sorted(leaving))


def _address(live: LiveObject | None, access: OutsideAccess, port_name: str) -> str | None:
    """Return the outside address of a port of a Service; None if it is not known yet.

    ``live`` is the Service, None if it does not exist. ``port_name`` is the name of the port.
    """
    ports = () if live is None else (live.get("spec") or {}).get("ports") or ()
    port = next((each for each in ports if each.get("name") == port_name), None)
    # A Service of another type than the spec wants has not been changed yet.
    if live is None or port is None or live["spec"].get("type") != access.type:
        return None
    match access.type:
        case OutsideType.NODE_PORT:
            number = port.get("nodePort")
            return None if number is None else join_address(access.host, number)
        case OutsideType.LOAD_BALANCER:
            hosts = _load_balancer_hosts(live)
            return join_address(hosts[0], port["port"]) if hosts else None


def _load_balancer_hosts(live: LiveObject) -> list[str]:
    """Return the names or the IP addresses of the load balancer of a Service, none without one."""
    status = (live.get("status") or {}).get("loadBalancer") or {}
    hosts = (each.get("hostname") or each.get("ip") for each in status.get("ingress") or ())
    return [host for host in hosts if host]


def _canonical(host: str) -> str:
    """Return a name or an IP address in the form in which certificates have it."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()
