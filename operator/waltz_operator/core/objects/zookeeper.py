"""A managed ZooKeeper: a StatefulSet whose empty members cannot form a second ensemble. Pure.

Members that lost their volumes could form the quorum of an empty ensemble. Then the cluster's
metadata would be lost. To prevent that, a ConfigMap, the *switch*, says whether a member with an
empty volume may initialize an ensemble. Its key ``found``, as in to found an ensemble, is ``yes``
until the cluster's metadata exists, and ``no`` from then on. While it is ``no``, an empty member
has no vote before it has copied the data from another member. If it is the only member of its
ensemble, it refuses to start. The image implements this rule by ``zookeeper.db.autocreate=false``
and the file ``initialize`` of ZooKeeper (tests/unit/operator/test_operator_zookeeper_start.py).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from waltz_operator.core import names
from waltz_operator.core.names import (
    ZOOKEEPER_CLIENT_PORT,
    ZOOKEEPER_ELECTION_PORT,
    ZOOKEEPER_PEER_PORT,
    Component,
)
from waltz_operator.core.objects.manifest import Manifest, amount, manifest
from waltz_operator.core.objects.pods import SCRATCH, claim_template, container, pod_template, probe
from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.resources.zookeeper import ManagedZooKeeper

SWITCH_KEY = "found"
"""The key of the switch in its ConfigMap; the value is ``yes`` or ``no``."""

_SERVES_CLIENTS = {"exec": {"command": ["/opt/zookeeper/ready"]}}
"""The check that a member serves clients, alone or in a quorum."""

_GRACE_SECONDS = 30
"""How long a member may take to stop, before Kubernetes kills it."""


def connect_string(cluster: WaltzCluster) -> str:
    """Return the connect string by which pods reach the cluster's ZooKeeper."""
    zookeeper, metadata = cluster.spec.zookeeper, cluster.metadata
    if zookeeper.managed is None:
        assert zookeeper.external is not None
        return zookeeper.external.connect_string
    name, members = names.zookeeper_set(metadata.name), zookeeper.managed.members
    service = f"{names.zookeeper_members_service(metadata.name)}.{metadata.namespace}.svc"
    return ",".join(f"{name}-{i}.{service}:{ZOOKEEPER_CLIENT_PORT}" for i in range(members))


def zookeeper_objects(cluster: WaltzCluster) -> tuple[Manifest, ...]:
    """Return the Services of a managed ZooKeeper: for its members, and for clients."""
    name = cluster.metadata.name
    object_labels = names.labels(name, Component.ZOOKEEPER)
    pods = names.selector(name, Component.ZOOKEEPER)
    client = {"name": "client", "port": ZOOKEEPER_CLIENT_PORT}
    members = {
        "clusterIP": "None",
        # Members must resolve each other's names before they are ready.
        "publishNotReadyAddresses": True,
        "selector": pods,
        "ports": [
            client,
            {"name": "peer", "port": ZOOKEEPER_PEER_PORT},
            {"name": "election", "port": ZOOKEEPER_ELECTION_PORT},
        ],
    }
    clients = {"selector": pods, "ports": [client]}
    services = {
        names.zookeeper_members_service(name): members,
        names.zookeeper_set(name): clients,
    }
    return tuple(
        manifest(cluster, "Service", service, object_labels, {"spec": spec})
        for service, spec in services.items()
    )


def zookeeper_switch(cluster: WaltzCluster, *, may_initialize: bool) -> Manifest:
    """Return the switch: the ConfigMap that says whether empty members may form an ensemble."""
    name = cluster.metadata.name
    return manifest(
        cluster,
        "ConfigMap",
        names.zookeeper_set(name),
        names.labels(name, Component.ZOOKEEPER),
        {"data": {SWITCH_KEY: "yes" if may_initialize else "no"}},
    )


def zookeeper_set(cluster: WaltzCluster, managed: ManagedZooKeeper) -> Manifest:
    """Return the StatefulSet of the members."""
    name = cluster.metadata.name
    object_labels = names.labels(name, Component.ZOOKEEPER)
    content = {
        "spec": {
            "replicas": managed.members,
            "serviceName": names.zookeeper_members_service(name),
            # A member is ready only in a quorum, so no member may wait until another one is ready.
            "podManagementPolicy": "Parallel",
            # The operator decides which pod is replaced next (`planning.rolls`).
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain",
                "whenScaled": "Retain",
            },
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": names.selector(name, Component.ZOOKEEPER)},
            "template": pod_template(
                cluster, Component.ZOOKEEPER, _pod(cluster, managed), managed.scheduling
            ),
            "volumeClaimTemplates": [claim_template("data", managed.volume, object_labels)],
        }
    }
    return manifest(cluster, "StatefulSet", names.zookeeper_set(name), object_labels, content)


def _pod(cluster: WaltzCluster, managed: ManagedZooKeeper) -> dict[str, Any]:
    """Return the part of the pod's spec that only ZooKeeper's members have."""
    name = cluster.metadata.name
    return {
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "switch", "configMap": {"name": names.zookeeper_set(name)}},
        ],
        "containers": [
            container(
                "zookeeper",
                cluster.spec.images.zookeeper,
                cluster,
                managed.resources,
                env=[
                    {"name": "MEMBERS", "value": str(managed.members)},
                    {
                        "name": "DOMAIN",
                        "value": f"{names.zookeeper_members_service(name)}"
                        f".{cluster.metadata.namespace}.svc",
                    },
                    {"name": "HEAP", "value": _java_size(managed.heap)},
                ],
                ports=[
                    {"name": "client", "containerPort": ZOOKEEPER_CLIENT_PORT},
                    {"name": "peer", "containerPort": ZOOKEEPER_PEER_PORT},
                    {"name": "election", "containerPort": ZOOKEEPER_ELECTION_PORT},
                ],
                volumeMounts=[
                    SCRATCH,
                    {"name": "data", "mountPath": "/data", "subPath": "zookeeper"},
                    {"name": "switch", "mountPath": "/etc/zookeeper", "readOnly": True},
                ],
                # Each probe starts a process in the container. So they are frequent only until the
                # member serves clients for the first time. A member that waits for a quorum is not
                # restarted for an hour.
                startupProbe=probe(_SERVES_CLIENTS, period=2, failures=1800),
                readinessProbe=probe(_SERVES_CLIENTS, period=5, failures=2),
                livenessProbe={
                    "tcpSocket": {"port": ZOOKEEPER_CLIENT_PORT},
                    "initialDelaySeconds": 30,
                    "periodSeconds": 10,
                    "failureThreshold": 6,
                },
            )
        ],
    }


def _java_size(quantity: str) -> str:
    """Return an amount of memory in the notation of the JVM: ``256Mi`` becomes ``256m``.

    The JVM knows no fractions, no decimal units and no petabytes: such an amount is returned in
    whole kibibytes. ``quantity`` is a valid quantity: the resource has a pattern for it.
    """
    if re.fullmatch("[0-9]+[KMGT]i", quantity):
        return quantity.removesuffix("i").lower()
    size = amount(quantity)
    assert isinstance(size, Decimal), quantity
    return f"{int(size) // 1024}k"
