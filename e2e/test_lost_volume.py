"""Test that lost volumes are replaced while a witness (`e2e.witness`) appends and reads.

A volume is lost when its claim (PersistentVolumeClaim) is deleted. One test deletes a claim under
load, and a second claim while the first storage is rebuilt. In another test, the operators that
replace a claim are killed after every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e import resources
from e2e.killing import killed_operators
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 180.0
_HEALED_SECONDS = 420.0
_SOON_SECONDS = 60.0
_PARTITIONS = 4
_RECORD = "waltz.dev/volume-replacement"
"""The annotation of a pool that records the replacement under way."""


def claims(namespace: Kubectl) -> dict[str, str]:
    """Return the uids of the storages' claims by name."""
    listed = namespace.find("persistentvolumeclaim", "waltz.dev/component=storage")
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed}


def delete_claim(namespace: Kubectl, name: str) -> None:
    """Delete a claim without waiting: it stays until its pod ends."""
    namespace("delete", "persistentvolumeclaim", name, "--wait=false")


def is_healthy(namespace: Kubectl) -> bool:
    cluster = namespace.get("waltzcluster", "log")
    assert cluster is not None
    conditions = {each["type"]: each["status"] for each in cluster["status"]["conditions"]}
    return bool(conditions["Healthy"] == "True")


def pool(namespace: Kubectl, name: str) -> dict[str, Any]:
    found = namespace.get("storagepool", name)
    assert found is not None
    return found


def is_being_replaced(namespace: Kubectl, name: str) -> bool:
    """Whether a pool has the record of a replacement, which ends with the last comparison."""
    return _RECORD in pool(namespace, name)["metadata"].get("annotations", {})


def await_replaced(namespace: Kubectl, old: dict[str, str], *names: str) -> None:
    """Return when the claims ``names`` are replaced and the cluster is Healthy.

    Raises AssertionError if another claim of ``old`` is replaced, too.
    """

    def replaced() -> bool:
        now = claims(namespace)
        return (
            now.keys() == old.keys()
            and all(now[name] != old[name] for name in names)
            and not any(is_being_replaced(namespace, pool_name) for pool_name in "xyz")
            and is_healthy(namespace)
        )

    description = f"{', '.join(names)} are replaced and the cluster is Healthy"
    until(replaced, _HEALED_SECONDS, description, show=namespace.describe)
    kept = {name: uid for name, uid in old.items() if name not in names}
    assert {name: claims(namespace)[name] for name in kept} == kept


def compare(witness: Witness) -> None:
    """Compare the replicas of all partitions; raises CommandFailed if any record differs."""
    for partition in range(_PARTITIONS):
        witness.waltz("storage", "compare", str(partition))


@pytest.fixture
def cluster(namespace: Kubectl) -> Iterator[tuple[Kubectl, Witness]]:
    volumes = {"data": {"size": "1Gi"}, "onLoss": "Replace", "lossDelaySeconds": 0}
    pools = [resources.pool(name, volumes=volumes) for name in "xyz"]
    namespace.apply(*pools, resources.cluster("log", list("xyz"), partitions=_PARTITIONS))
    namespace.await_condition("waltzcluster/log", "Healthy", _READY_SECONDS)
    witness = Witness(namespace)
    witness.start("log")
    witness.await_progress(_SOON_SECONDS)
    yield namespace, witness
    witness.await_progress(_SOON_SECONDS)
    witness.finish()


def test_two_claims_deleted_under_load_are_replaced_one_after_the_other(
    cluster: tuple[Kubectl, Witness],
) -> None:
    namespace, witness = cluster
    old = claims(namespace)
    delete_claim(namespace, "data-x-storage-0")
    until(
        lambda: claims(namespace).get("data-x-storage-0") != old["data-x-storage-0"],
        _READY_SECONDS,
        "the first claim is deleted",
        show=namespace.describe,
    )
    delete_claim(namespace, "data-y-storage-0")
    await_replaced(namespace, old, "data-x-storage-0", "data-y-storage-0")
    witness.await_progress(_SOON_SECONDS)
    compare(witness)
    for name in "xyz":
        found = pool(namespace, name)
        assert _RECORD not in found["metadata"].get("annotations", {})
        assert found["status"]["lostVolumes"] == []


def test_volume_is_replaced_on_request(cluster: tuple[Kubectl, Witness]) -> None:
    namespace, witness = cluster
    old = claims(namespace)
    namespace("annotate", "storagepool", "z", "waltz.dev/replace-volume=z-storage-0")
    await_replaced(namespace, old, "data-z-storage-0")
    witness.await_progress(_SOON_SECONDS)
    compare(witness)
    assert "waltz.dev/replace-volume" not in pool(namespace, "z")["metadata"]["annotations"]


def test_replacement_with_operator_killed_after_every_step_completes(
    own_operator: Operator, cluster: tuple[Kubectl, Witness]
) -> None:
    namespace, witness = cluster
    old = claims(namespace)
    with killed_operators(own_operator) as killed:
        delete_claim(namespace, "data-x-storage-0")
        await_replaced(namespace, old, "data-x-storage-0")
    assert killed.count >= 4, "each phase is at least one step"
    witness.await_progress(_SOON_SECONDS)
    compare(witness)
