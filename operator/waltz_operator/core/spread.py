"""Find nodes whose loss takes several copies of a partition, or ZooKeeper's quorum. Pure.

A copy is the replica of a partition on one storage. The scheduler of Kubernetes prefers different
nodes for the copies of a partition (`core.objects.pods`). But a Kubernetes cluster may have too few
nodes, or the pods of an earlier version may share a node. The operator shows the nodes that this
module finds in the condition Spread. It moves no pod, because a volume may belong to a node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from waltz.admin.core.replicas import quorum
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component, pod_of_storage
from waltz_operator.core.observed import ClusterPresent, ObservedCluster


def describe_shared_nodes(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent
) -> tuple[str, ...]:
    """Return a sentence for each node whose loss takes several copies or ZooKeeper's quorum."""
    about_storages = _shared_by_storages(_nodes(observed, Component.STORAGE), present)
    managed = desired.cluster.spec.zookeeper.managed
    if managed is None:
        return tuple(about_storages)
    about_members = _shared_by_members(_nodes(observed, Component.ZOOKEEPER), managed.members)
    return (*about_storages, *about_members)


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
            pod = pod_of_storage(storage)
            if pod in nodes:
                copies_by_node[nodes[pod]].add(pod)
        for node, pods in copies_by_node.items():
            if len(pods) > 1:
                pods_by_node[node] |= pods
                partitions_by_node[node].add(view.partition)
    for node, pods in sorted(pods_by_node.items()):
        count = len(partitions_by_node[node])
        yield (
            f"node {node} has several copies of {count} partition{'' if count == 1 else 's'}, in "
            f"the pods {', '.join(sorted(pods))}: add nodes, then delete one of these pods while "
            "the cluster is Healthy"
        )


def _shared_by_members(nodes: Mapping[str, str], num_members: int) -> Iterable[str]:
    """Yield a sentence for each node with so many ZooKeeper members that the others are no quorum.

    ``nodes`` are the nodes of the pods that the scheduler has placed. ``num_members`` is the number
    of all members, also of those that have no node yet.
    """
    if num_members == 1:
        return  # The only member is always on one node.
    pods_by_node: defaultdict[str, set[str]] = defaultdict(set)
    for pod, node in nodes.items():
        pods_by_node[node].add(pod)
    for node, pods in sorted(pods_by_node.items()):
        if num_members - len(pods) < quorum(num_members):
            # The sentence asks for all members, because with another member absent the deletion
            # would cost the quorum.
            yield (
                f"node {node} has {len(pods)} of {num_members} ZooKeeper members, the pods "
                f"{', '.join(sorted(pods))}: add nodes, then delete one of these pods while all "
                "members are ready"
            )
