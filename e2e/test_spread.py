"""Test on which nodes the storages and ZooKeeper members of the shared cluster run.

The condition Spread says whether two of them share a node. The tests hold on any number of nodes:
with fewer than three nodes, some of the three storages must share a node.
"""

from __future__ import annotations

import json
from collections import Counter

from e2e.kubectl import Kubectl, run
from e2e.waiting import until

_SOON_SECONDS = 60.0
_COPIES = 3


def count_schedulable_nodes() -> int:
    """Return the number of nodes on which pods may be started."""
    nodes = json.loads(run("kubectl", "get", "nodes", "-o", "json"))["items"]
    return sum(not node["spec"].get("unschedulable", False) for node in nodes)


def pods_by_node(log: Kubectl, component: str) -> Counter[str]:
    """Return the number of pods of a component on each node."""
    pods = log.find("pod", f"waltz.dev/cluster=log,waltz.dev/component={component}")
    return Counter(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))


def spread_condition(log: Kubectl) -> dict[str, str]:
    cluster = log.get("waltzcluster", "log")
    assert cluster is not None
    (found,) = (each for each in cluster["status"]["conditions"] if each["type"] == "Spread")
    assert isinstance(found, dict)
    return found


def test_copies_and_members_run_on_different_nodes_where_there_are_enough(log: Kubectl) -> None:
    expected = min(count_schedulable_nodes(), _COPIES)
    for component in ("storage", "zookeeper"):
        assert len(pods_by_node(log, component)) == expected, component


def test_spread_is_true_only_if_no_node_has_two_copies(log: Kubectl) -> None:
    log.await_condition("waltzcluster/log", "Healthy", _SOON_SECONDS)
    storages, members = pods_by_node(log, "storage"), pods_by_node(log, "zookeeper")
    shared = [node for node in {*storages, *members} if max(storages[node], members[node]) > 1]
    expected = "False" if shared else "True"
    until(
        lambda: spread_condition(log)["status"] == expected,
        _SOON_SECONDS,
        f"Spread is {expected}",
        show=log.describe,
    )
    message = spread_condition(log)["message"]
    assert all(f"node {node} has" in message for node in shared)
    assert bool(message) is bool(shared)


def test_every_pod_requests_cpu_and_memory(log: Kubectl) -> None:
    for pod in log.find("pod", "waltz.dev/cluster=log"):
        for container in pod["spec"]["containers"]:
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
