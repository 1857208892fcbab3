"""The Services by which clients outside of the Kubernetes cluster reach a Waltz cluster. Pure.

Each storage, and each slot of servers (`core.slots`), has a Service of its own, because a client
must reach exactly the process that has a partition. The Services of servers and storages lead to
pods that are not ready, too. A server is not ready while one of its partitions is not open, and a
storage while one of its replicas takes no part in its session. Clients of the other partitions must
still reach them. A Service selects the port of a pod by the name of the port, because a pod of an
earlier version may have another number for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from waltz_operator.core import names
from waltz_operator.core.names import OUTSIDE_LABEL, SLOT_LABEL, ZOOKEEPER_CLIENT_PORT, Component
from waltz_operator.core.objects.manifest import Manifest, manifest
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.resources.outside import OutsideAccess, OutsideType

_POD_LABEL = "statefulset.kubernetes.io/pod-name"
"""The label of a StatefulSet's pod whose value is the name of the pod; Kubernetes sets it."""


def outside_server_services(
    cluster: WaltzCluster, access: OutsideAccess, slots: Iterable[int]
) -> tuple[Manifest, ...]:
    """Return the Services of the servers, one for each slot."""
    name, port = cluster.metadata.name, cluster.spec.servers.port
    return tuple(
        _service(
            cluster,
            access,
            names.outside_server(name, slot),
            labels=names.labels(name, Component.SERVER),
            selector={**names.selector(name, Component.SERVER), SLOT_LABEL: str(slot)},
            ports={"waltz": port},
        )
        for slot in slots
    )


def outside_storage_services(
    cluster: WaltzCluster, access: OutsideAccess, pool: StoragePool, ordinals: Iterable[int]
) -> tuple[Manifest, ...]:
    """Return the Services of some storages of a pool, one for each ordinal."""
    name, pool_name, spec = cluster.metadata.name, pool.metadata.name, pool.spec
    ports = {"storage": spec.port}
    if access.admin_ports:
        ports["admin"] = spec.admin_port
    return tuple(
        _service(
            pool,
            access,
            names.outside_storage(pool_name, ordinal),
            labels=names.labels(name, Component.STORAGE, pool_name),
            selector={
                **names.selector(name, Component.STORAGE, pool_name),
                _POD_LABEL: f"{names.storage_set(pool_name)}-{ordinal}",
            },
            ports=ports,
        )
        for ordinal in ordinals
    )


def outside_zookeeper_service(cluster: WaltzCluster, access: OutsideAccess) -> Manifest:
    """Return the Service of a managed ZooKeeper, which leads to the members that are ready."""
    name = cluster.metadata.name
    return _service(
        cluster,
        access,
        names.outside_zookeeper(name),
        labels=names.labels(name, Component.ZOOKEEPER),
        selector=names.selector(name, Component.ZOOKEEPER),
        ports={"client": ZOOKEEPER_CLIENT_PORT},
        only_ready=True,
    )


def _service(
    owner: WaltzCluster | StoragePool,
    access: OutsideAccess,
    name: str,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    ports: Mapping[str, int],
    *,
    only_ready: bool = False,
) -> Manifest:
    """Return a Service.

    ``ports`` are the ports of the Service by the name that the port has in the container. With
    ``only_ready``, the Service leads only to pods that are ready.
    """
    spec: dict[str, Any] = {
        "type": access.type.value,
        "externalTrafficPolicy": access.external_traffic_policy.value,
        "selector": dict(selector),
        "ports": [
            {"name": port, "port": number, "targetPort": port} for port, number in ports.items()
        ],
    }
    if not only_ready:
        # If the value is false, the API server omits the field, so the manifest omits it, too.
        spec["publishNotReadyAddresses"] = True
    if access.type is OutsideType.LOAD_BALANCER and access.normalized_source_ranges:
        spec["loadBalancerSourceRanges"] = list(access.normalized_source_ranges)
    object_labels = {**labels, OUTSIDE_LABEL: "true"}
    return manifest(owner, "Service", name, object_labels, {"spec": spec}, access.annotations)
