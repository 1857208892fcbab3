"""The plan for one cluster, from the plans for its parts. Pure; see the package for what holds."""

from __future__ import annotations

from waltz_operator.core.desired import Desired
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.observed import Absent, Observed, Present, Strange, Unfinished, Unreachable
from waltz_operator.core.planning.deletion import plan_deletion
from waltz_operator.core.planning.replicas import plan_replicas
from waltz_operator.core.planning.workloads import Gates, plan_workloads
from waltz_operator.core.planning.znodes import plan_metadata, plan_storages
from waltz_operator.core.steps import NOTHING, Claim, Guard, Plan, problem, wait


def plan(desired: Desired, observed: Observed) -> Plan:
    """Return what to do next."""
    if desired.cluster.spec.paused:
        return wait("the cluster is paused: set spec.paused to false to have it looked after")
    if desired.deleting:
        return plan_deletion(desired, observed)
    if FINALIZER not in desired.cluster.metadata.finalizers:
        # Nothing is made that might be left behind.
        return Plan((Guard(),))
    claims = _claims(desired)
    metadata, gates = _metadata(desired, observed)
    return claims + plan_workloads(desired, observed, gates) + metadata


def _claims(desired: Desired) -> Plan:
    result = NOTHING
    for name in desired.missing_pools:
        result += wait(f"StoragePool {name} does not exist: create it")
    for pool in desired.pools:
        name, owner = pool.metadata.name, pool.metadata.labels.get(CLUSTER_LABEL)
        if owner not in (None, desired.name):
            result += problem(
                f"StoragePool {name} belongs to WaltzCluster {owner}: name another pool"
            )
        elif pool.metadata.deletion_timestamp is not None:
            result += problem(
                f"StoragePool {name} was deleted, and stays until WaltzCluster {desired.name}, "
                "which needs it, is deleted, too"
            )
        elif owner is None or FINALIZER not in pool.metadata.finalizers:
            result += Plan((Claim(name),))
    return result


def _metadata(desired: Desired, observed: Observed) -> tuple[Plan, Gates]:
    """Return what is to be done by way of ZooKeeper, and which workloads that allows to begin."""
    closed = Gates(storages=False, servers=False, registered=None)
    match observed.metadata:
        case Unreachable(reason):
            return wait(f"ZooKeeper at {desired.zookeeper} does not answer: {reason}"), closed
        case Absent() | Unfinished() | Strange():
            return plan_metadata(desired, observed.metadata), closed
        case Present() as present:
            foreign = plan_metadata(desired, present)
            if foreign.problems:
                return foreign, closed
            storages = plan_storages(desired, present)
            replicas, all_assigned = plan_replicas(desired, present)
            registered = frozenset(present.maps.groups.groups)
            gates = Gates(storages=True, servers=all_assigned, registered=registered)
            return storages + replicas, gates
