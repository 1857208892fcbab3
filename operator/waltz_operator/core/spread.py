"""Find copies that share a node, so that the loss of that node costs more than one copy. Pure.

The scheduler of Kubernetes prefers different nodes for copies (`core.objects.pods`), but a cluster
may have too few nodes, or the pods of an earlier version may share one. The result is only shown:
the operator moves no pod, because a volume may belong to a node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from waltz.admin.core.replicas import quorum
from waltz_operator.core.names import Component
from waltz_operator.core.observed import ClusterPresent, ObservedCluster


def shared_nodes(observed: ObservedCluster, present: ClusterPresent) -> tuple[str, ...]:
    """Return a sentence for each node whose loss takes several copies or ZooKeeper's quorum."""
    return (
        *_shared_by_storages(_nodes(observed, Component.STORAGE), present),
        *_shared_by_members(_nodes(observed, Component.ZOOKEEPER)),
    )


def _nodes(observed: ObservedCluster, component: Component) -> dict[str, str]:
    """Return the node of each pod of a component that the scheduler has placed."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in observed.of_kind("Pod", component)
        if (pod.get("spec") or {}).get("nodeName")
    }


def _shared_by_storages(nodes: Mapping[str, str], present: ClusterPresent) -> Iterable[str]:
    """Yield a sentence for each node with several copies of a partition.

    ``nodes`` are the nodes of the storages' pods.
    """
    pods_by_node: defaultdict[str, set[str]] = defaultdict(set)
    partitions_by_node: defaultdict[str, set[int]] = defaultdict(set)
    for view in present.replicas.partitions.values():
        copies_by_node: defaultdict[str, set[str]] = defaultdict(set)  # Copies of this partition.
        for storage in view.replicas:
            # The address of a storage begins with the name of its pod.
            pod = storage.partition(".")[0]
            if pod in nodes:
                copies_by_node[nodes[pod]].add(pod)
        for node, pods in copies_by_node.items():
            if len(pods) > 1:
                pods_by_node[node] |= pods
                partitions_by_node[node].add(view.partition)
    for node, pods in sorted(pods_by_node.items()):
        yield (
            f"node {node} has several copies of {len(partitions_by_node[node])} partitions, in the "
            f"pods {', '.join(sorted(pods))}: add nodes, then delete one of these pods"
        )


def _shared_by_members(nodes: Mapping[str, str]) -> Iterable[str]:
    """Yield a sentence for each node with so many ZooKeeper members that the others are no quorum.

    ``nodes`` are the nodes of the members' pods.
    """
    pods_by_node: defaultdict[str, set[str]] = defaultdict(set)
    for pod, node in nodes.items():
        pods_by_node[node].add(pod)
    for node, pods in sorted(pods_by_node.items()):
        # The only member of an ensemble is always on one node.
        if len(nodes) > 1 and len(nodes) - len(pods) < quorum(len(nodes)):
            yield (
                f"node {node} has {len(pods)} of {len(nodes)} ZooKeeper members, the pods "
                f"{', '.join(sorted(pods))}: add nodes, then delete one of these pods"
            )
