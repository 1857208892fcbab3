"""The Kubernetes objects of a cluster, as manifests. Pure.

``manifest`` defines a manifest, and compares it with a live object. ``pods`` has the parts that all
pods have, ``zookeeper_access`` the TLS and the credentials of pods for an external ZooKeeper.
``storage``, ``server`` and ``zookeeper`` return the workloads of these components, ``protection``
returns disruption budgets and network policies, ``certificate_request`` returns the Certificate for
cert-manager, and ``outside`` returns the Services for clients outside of the Kubernetes cluster.
"""

from waltz_operator.core.objects.certificate_request import certificate_requests
from waltz_operator.core.objects.manifest import Manifest, ObjectKey, is_ours, matches
from waltz_operator.core.objects.outside import (
    outside_server_services,
    outside_storage_services,
    outside_zookeeper_service,
)
from waltz_operator.core.objects.protection import PodPorts, budgets, network_policies
from waltz_operator.core.objects.server import server_deployment, server_objects
from waltz_operator.core.objects.storage import storage_objects, storage_set
from waltz_operator.core.objects.zookeeper import (
    connect_string,
    zookeeper_objects,
    zookeeper_set,
    zookeeper_switch,
)

__all__ = [
    "Manifest",
    "ObjectKey",
    "PodPorts",
    "budgets",
    "certificate_requests",
    "connect_string",
    "is_ours",
    "matches",
    "network_policies",
    "outside_server_services",
    "outside_storage_services",
    "outside_zookeeper_service",
    "server_deployment",
    "server_objects",
    "storage_objects",
    "storage_set",
    "zookeeper_objects",
    "zookeeper_set",
    "zookeeper_switch",
]
