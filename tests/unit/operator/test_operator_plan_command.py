"""The command `waltz-operator plan`: what it prints for a file, and that it writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube
from tests.support.operator_world import NAMESPACE
from tests.unit.operator.test_operator_reconcile import Operation
from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.plan_command import _parser, plan_lines
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.requested import (
    RequestedKube,
    RequestRefused,
    clusters_of,
    merge_resources,
    read_resources,
)


class ReadOnlyKube(FaultyKube):
    """An API server that fails the test on a write."""

    def _write(self, key: object, body: Mapping[str, Any]) -> None:
        raise AssertionError(f"{key} was written")

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        raise AssertionError(f"{name} was patched")

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str, *, orphan: bool = False
    ) -> None:
        raise AssertionError(f"{name} was deleted")


@pytest.fixture(autouse=True)
def operator_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    # The NetworkPolicies name it, and the chart sets it.
    monkeypatch.setenv("WALTZ_OPERATOR_NAMESPACE", "waltz-system")


def pool_file(**spec: Any) -> str:
    wanted = {"storages": 2, "volumes": {"data": {"size": "1Gi"}}} | spec
    return yaml.safe_dump({"kind": "StoragePool", "metadata": {"name": "a"}, "spec": wanted})


async def plan_of(operation: Operation, text: str, *, every_step: bool = False) -> list[str]:
    kube = ReadOnlyKube(operation.world, Faults())
    requested = await merge_resources(kube, read_resources(text, NAMESPACE))
    environment = FakeEnvironment(operation.znodes, Faults())
    clusters = await clusters_of(kube, requested)
    return await plan_lines(kube, environment, requested, clusters, every_step=every_step)


async def test_plan_of_a_scaled_pool_names_its_moves_and_writes_nothing() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    objects = deepcopy((operation.world.objects, operation.world.pools, operation.world.cluster))
    znodes, disks = operation.znodes.zookeeper.dump(), deepcopy(operation.world.disks)
    text = "\n".join(await plan_of(operation, pool_file()))
    assert "storage a-storage-1.a-storage.logs.svc:6000 gets partition 0" in text
    assert "storage a-storage-0.a-storage.logs.svc:6000 gives up partition 0" in text
    assert "data-a-storage-1 (1Gi)" in text
    assert "risk now: any 1 storage may fail" in text
    assert text.endswith("then the cluster is as its resources specify")
    world = operation.world
    assert (world.objects, world.pools, world.cluster) == objects
    assert operation.znodes.zookeeper.dump() == znodes
    assert world.disks == disks


async def test_plan_with_every_step_numbers_them() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    lines = await plan_of(operation, pool_file(), every_step=True)
    assert any(line.startswith("1. ") for line in lines)
    assert any("ZooKeeper assigns partition 0 to" in line for line in lines)


async def test_plan_of_a_requested_rebalance_has_its_moves_and_writes_nothing() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    before = deepcopy((operation.world.pools, operation.world.disks))
    pool = yaml.safe_load(pool_file(storages=1))
    pool["metadata"]["annotations"] = {"waltz.dev/rebalance": "now"}
    lines = await plan_of(operation, yaml.safe_dump(pool))
    assert lines[1] == "1. pool a is rebalanced by bytes"
    assert any("the rebalance now begins, 0 moves; used shares" in line for line in lines)
    assert any("the rebalance now is complete" in line for line in lines)
    assert (operation.world.pools, operation.world.disks) == before


async def test_plan_of_a_copy_has_a_time_by_the_rate_of_the_command() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    assert any("at 50 MB/s" in line for line in await plan_of(operation, pool_file()))


@pytest.mark.parametrize("rate", ["0", "-1", "inf", "nan", "fast"])
def test_rate_that_is_not_positive_is_refused(
    rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _parser().parse_args(["log", "--rate", "12.5"]).rate == 12.5
    with pytest.raises(SystemExit):
        _parser().parse_args(["log", f"--rate={rate}"])
    assert f"{rate} is not a positive number, such as 50" in capsys.readouterr().err


async def test_plan_of_an_unchanged_pool_has_nothing_to_do() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    lines = await plan_of(operation, pool_file(storages=1))
    assert lines[-1].startswith("nothing to do")


async def test_plan_of_a_pool_that_is_removed_below_three_copies_is_refused() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    cluster = deepcopy(operation.world.cluster)
    assert cluster is not None
    cluster["kind"] = "WaltzCluster"
    cluster["spec"]["pools"] = ["a", "b"]
    lines = await plan_of(operation, yaml.safe_dump(cluster))
    assert any("refused: pool c is not removed" in line for line in lines)
    assert lines[-1] == "the operator stops here until a person acts"


async def test_port_that_never_changes_is_refused() -> None:
    operation = Operation(Faults())
    await operation.until_done()
    operation.world.pools["a"]["spec"]["port"] = 6000
    with pytest.raises(RequestRefused, match="port cannot change"):
        await plan_of(operation, pool_file(port=7000))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "kind: Pod",
        "kind: StoragePool",
        "- 3",
        "kind: [StoragePool]",
        "{kind: StoragePool, metadata: {name: [a]}, spec: {}}",
        "{kind: List, items: 3}",
        "{kind: StoragePool, metadata: {name: a, labels: [b]}, spec: {}}",
    ],
)
def test_file_without_a_resource_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused):
        read_resources(text, NAMESPACE)


@pytest.mark.parametrize("part", ["labels", "annotations"])
async def test_file_adds_labels_and_annotations_to_those_of_the_resource(part: str) -> None:
    """An apply of a file keeps the label by which a cluster has claimed its pool."""
    operation = Operation(Faults())
    await operation.until_done()
    before = operation.world.pools["a"]["metadata"].get(part) or {}
    file = yaml.safe_load(pool_file())
    file["metadata"][part] = {"team": "logs"}
    kube = ReadOnlyKube(operation.world, Faults())
    requested = await merge_resources(kube, read_resources(yaml.safe_dump(file), NAMESPACE))
    assert requested["StoragePool", NAMESPACE, "a"]["metadata"][part] == {**before, "team": "logs"}


@pytest.mark.parametrize("namespace", [NAMESPACE, ""])
async def test_file_with_a_new_pool_of_a_cluster_is_found_by_its_label(namespace: str) -> None:
    operation = Operation(Faults())
    await operation.until_done()
    kube = ReadOnlyKube(operation.world, Faults())
    label = {CLUSTER_LABEL: operation.world.pools["a"]["metadata"]["labels"][CLUSTER_LABEL]}
    new, foreign, changed = (yaml.safe_load(pool_file()) for _ in range(3))
    new["metadata"] = {"name": "new", "labels": label}
    foreign["metadata"] = {"name": "foreign"}
    changed["metadata"]["labels"] = {CLUSTER_LABEL: "other"}
    text = yaml.safe_dump_all([new, foreign, changed])
    requested = await merge_resources(kube, read_resources(text, NAMESPACE))
    found = await RequestedKube(kube, requested).find("StoragePool", namespace, label)
    assert [each["metadata"]["name"] for each in found] == ["b", "c", "new"]


async def test_every_write_through_a_preview_is_refused() -> None:
    kube = RequestedKube(FaultyKube(Operation(Faults()).world, Faults()), {})
    for write in (
        kube.create({}),
        kube.apply({}),
        kube.patch("Pod", "logs", "x", {}),
        kube.delete("Pod", "logs", "x", ""),
    ):
        with pytest.raises(KubeError, match="changes nothing"):
            await write
