"""Test pools that leave a cluster and pools that do not exist yet, also without ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.operator_faults import Faults, delete_by_user
from tests.support.operator_world import pool_resource
from tests.unit.operator.test_operator_reconcile import Operation
from waltz_operator.core.names import (
    CLUSTER_LABEL,
    FINALIZER,
    REBALANCE_ANNOTATION,
    REBALANCED_ANNOTATION,
    REPLACE_VOLUME_ANNOTATION,
    REPLACEMENT_ANNOTATION,
)
from waltz_operator.core.rebalance import Rebalance
from waltz_operator.core.resources import ObjectMeta
from waltz_operator.core.steps import ReleasePool
from waltz_operator.core.volume_replacement import Replacement
from waltz_operator.shell.executor import perform_on_pool
from waltz_operator.shell.kube_api import Conflict, KubeError

_MANY_CALLS = 200


async def running(faults: Faults) -> Operation:
    """Return a running cluster of four pools, of which the spec names only three from now on."""
    operation = Operation(faults, pools=3, partitions=1)
    await operation.until_done()
    operation.world.pools["d"] = pool_resource("d")
    specify(operation, "abcd")
    await operation.until_done()
    specify(operation, "abc")
    return operation


def specify(operation: Operation, pools: str) -> None:
    assert operation.world.cluster is not None
    operation.world.cluster["spec"]["pools"] = list(pools)
    operation.world.cluster["metadata"]["generation"] += 1


def pool(operation: Operation) -> dict[str, Any]:
    """Return the pool that leaves the cluster."""
    return operation.world.pools["d"]


async def test_released_pool_has_no_status_of_its_old_cluster() -> None:
    operation = await running(Faults())
    assert pool(operation)["status"]["cluster"] == "log"
    await operation.until_done()
    assert CLUSTER_LABEL not in pool(operation)["metadata"]["labels"]
    assert pool(operation).get("status", {}) == {}


async def test_released_pool_has_no_records_and_requests_of_its_old_cluster() -> None:
    """The next cluster of the pool would continue the replacement, and delete a volume claim."""
    operation = await running(Faults())
    pool(operation)["metadata"]["annotations"] = {
        REPLACEMENT_ANNOTATION: Replacement("d-storage-0", ("uid",)).to_json(),
        REPLACE_VOLUME_ANNOTATION: "d-storage-0",
        REBALANCED_ANNOTATION: Rebalance(answered="1").to_json(),
        REBALANCE_ANNOTATION: "1",
        "team": "orders",
    }
    delete_by_user(operation.world)
    del pool(operation)["metadata"]["deletionTimestamp"]
    await operation.until_done()
    assert CLUSTER_LABEL not in pool(operation)["metadata"]["labels"]
    assert pool(operation)["metadata"]["annotations"] == {"team": "orders"}


async def test_pool_released_by_operators_killed_after_any_call_has_no_status() -> None:
    for calls in range(1, _MANY_CALLS):
        faults = Faults()
        operation = await running(faults)
        faults.kill_at = faults.calls + calls
        await operation.until_done()
        assert CLUSTER_LABEL not in pool(operation)["metadata"]["labels"]
        assert pool(operation).get("status", {}) == {}, f"killed after call {calls}"
        if not operation.kills:
            return
    raise AssertionError("the removal has too many calls")


async def test_pool_claimed_by_another_cluster_during_its_release_stays_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operation = await running(Faults())
    found, patch = pool(operation), operation.kube.patch

    async def patch_and_claim(*args: Any, part: str = "") -> None:
        await patch(*args, part=part)
        found["metadata"]["labels"] = {CLUSTER_LABEL: "other"}

    observed = ObjectMeta.model_validate(found["metadata"])
    monkeypatch.setattr(operation.kube, "patch", patch_and_claim)
    with pytest.raises(Conflict, match="has changed"):
        await perform_on_pool(operation.kube, observed, ReleasePool("d"))
    assert found["metadata"]["labels"] == {CLUSTER_LABEL: "other"}
    assert found["metadata"]["finalizers"] == [FINALIZER]


async def test_pool_deleted_during_its_release_ends_the_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operation = await running(Faults())
    observed, patch = ObjectMeta.model_validate(pool(operation)["metadata"]), operation.kube.patch

    async def patch_and_remove(*args: Any, part: str = "") -> None:
        await patch(*args, part=part)
        del operation.world.pools["d"]

    monkeypatch.setattr(operation.kube, "patch", patch_and_remove)
    await perform_on_pool(operation.kube, observed, ReleasePool("d"))
    with pytest.raises(KubeError, match="not found"):
        await perform_on_pool(operation.kube, observed, ReleasePool("d"))


async def test_leaving_pool_keeps_its_group_and_its_objects_while_zookeeper_is_away() -> None:
    operation = await running(Faults())
    world = operation.world
    world.zookeeper_up = False
    objects = {key for key in world.objects if key.name.startswith("d-storage")}
    replicas, group = dict(world.disks), pool(operation)["status"]["group"]
    assert objects
    assert group == 3
    for _ in range(5):
        done = len(operation.events.done)
        world.settle()
        await operation.reconcile()
        given_up = [step for step in operation.events.done[done:] if "d-storage" in step]
        assert given_up == []
    assert objects <= world.objects.keys()
    assert world.disks == replicas
    assert pool(operation)["metadata"]["labels"] == {CLUSTER_LABEL: "log"}
    assert pool(operation)["metadata"]["finalizers"] == [FINALIZER]
    status = pool(operation)["status"]
    assert (status["cluster"], status["group"]) == ("log", group)
    reconciled = operation.condition("Reconciled")
    assert (reconciled["status"], reconciled["reason"]) == ("Unknown", "ZooKeeperUnreachable")
    assert "does not answer" in str(reconciled["message"])
    assert world.cluster is not None
    assert world.cluster["status"]["observedGeneration"] == 2, "the removal is not complete"
    assert reconciled["observedGeneration"] == 3, "kubectl wait must not ignore the condition"
    world.zookeeper_up = True
    await operation.until_done()
    assert CLUSTER_LABEL not in pool(operation)["metadata"]["labels"]


async def test_spec_with_a_pool_that_does_not_exist_is_not_reconciled() -> None:
    operation = Operation(Faults(), pools=3, partitions=1)
    await operation.until_done()
    specify(operation, "abcd")
    for _ in range(3):
        await operation.reconcile()
    for kind in ("Reconciled", "Ready"):
        condition = operation.condition(kind)
        assert (condition["status"], condition["reason"]) == ("False", "Reconciling")
        assert condition["observedGeneration"] == 2, "kubectl wait must not ignore the condition"
        assert "StoragePool d does not exist: create it" in str(condition["message"])
    assert operation.world.cluster is not None
    assert operation.world.cluster["status"]["observedGeneration"] == 1
    operation.world.pools["d"] = pool_resource("d")
    await operation.until_done()
    for kind in ("Reconciled", "Ready"):
        assert operation.condition(kind)["status"] == "True"
        assert operation.condition(kind)["observedGeneration"] == 2
