"""Test that volumes grow while clients append and read, and no pod is restarted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import resources
from e2e.killing import killed_operators
from e2e.kubectl import Kubectl, run
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_GROWTH_SECONDS = 180.0
_POOLS = ("x", "y", "z")
_STORAGE = "waltz.dev/component=storage"


def default_class() -> dict[str, Any]:
    """Return the default StorageClass."""
    classes = json.loads(run("kubectl", "get", "storageclasses", "-o", "json"))["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    return next(
        each
        for each in classes
        if (each["metadata"].get("annotations") or {}).get(default) == "true"
    )


@pytest.fixture
def fixed_class(namespace: Kubectl) -> Iterator[str]:
    """The name of a StorageClass like the default one, whose volumes cannot grow."""
    name = f"fixed-{namespace.namespace}"
    kept = ("apiVersion", "kind", "provisioner", "parameters", "volumeBindingMode")
    copied = {key: value for key, value in default_class().items() if key in kept}
    namespace.apply(copied | {"metadata": {"name": name}, "allowVolumeExpansion": False})
    yield name
    run("kubectl", "delete", "storageclass", name, "--ignore-not-found")


def start_cluster(namespace: Kubectl, **data: str) -> dict[str, tuple[str, int]]:
    """Start a cluster of three pools; ``data`` are fields of their data volumes.

    Returns the pods of the storages, as `pods` does.
    """
    volumes = {"data": {"size": "1Gi"} | data}
    namespace.apply(
        *(resources.pool(name, volumes=volumes) for name in _POOLS),
        resources.cluster("log", list(_POOLS), partitions=2),
    )
    namespace.await_condition("waltzcluster/log", "Healthy", 300)
    return pods(namespace)


def pods(namespace: Kubectl) -> dict[str, tuple[str, int]]:
    """Return the uid and the number of restarts of every pod of a storage."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["status"]["containerStatuses"][0]["restartCount"],
        )
        for pod in namespace.find("pod", _STORAGE)
    }


def enlarge(namespace: Kubectl, pool: str, size: str) -> None:
    """Request data volumes of ``size`` for a pool; return before they have grown."""
    namespace.patch("storagepool", pool, {"spec": {"volumes": {"data": {"size": size}}}})


def resized_condition(namespace: Kubectl, pool: str) -> dict[str, Any]:
    """Return the condition Resized of a pool, empty if the status has none yet."""
    live = namespace.get("storagepool", pool)
    assert live is not None
    conditions = live.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Resized"), {})


def await_size(namespace: Kubectl, size: str) -> None:
    """Return when every volume and every StatefulSet has ``size``, and the cluster is Healthy."""

    def reached() -> bool:
        claims = namespace.find("persistentvolumeclaim", _STORAGE)
        sets = namespace.find("statefulset", _STORAGE)
        templates = [
            template["spec"]["resources"]["requests"]["storage"]
            for each in sets
            for template in each["spec"]["volumeClaimTemplates"]
        ]
        return (
            {each["status"].get("capacity", {}).get("storage") for each in claims} == {size}
            and templates == [size] * len(_POOLS)
            and all(resized_condition(namespace, pool).get("status") == "True" for pool in _POOLS)
        )

    until(reached, _GROWTH_SECONDS, f"all volumes have {size}", show=namespace.describe)
    namespace.await_condition("waltzcluster/log", "Healthy", _GROWTH_SECONDS)


@pytest.fixture
def running(namespace: Kubectl) -> dict[str, tuple[str, int]]:
    """The pods of a started cluster."""
    return start_cluster(namespace)


# A string, which pytest evaluates when the test is due: `default_class` needs the Kubernetes.
@pytest.mark.skipif("not default_class().get('allowVolumeExpansion')", reason="volumes cannot grow")
def test_volumes_grow_under_load_with_operator_killed_after_every_step(
    own_operator: Operator, namespace: Kubectl, running: dict[str, tuple[str, int]]
) -> None:
    witness = Witness(namespace)
    witness.start("log")
    with killed_operators(own_operator) as killed:
        for pool in _POOLS:
            enlarge(namespace, pool, "2Gi")
        await_size(namespace, "2Gi")
        assert pods(namespace) == running, "no storage was restarted"
        witness.await_progress(60)
        witness.finish()
        namespace.patch("storagepool", "x", {"spec": {"storages": 2}})
        until(
            lambda: namespace.get("persistentvolumeclaim", "data-x-storage-1") is not None,
            _GROWTH_SECONDS,
            "the new storage has a volume",
            show=namespace.describe,
        )
    assert killed.count >= len(_POOLS)
    claim = namespace.get("persistentvolumeclaim", "data-x-storage-1")
    assert claim is not None
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"


def test_class_that_cannot_grow_restarts_nothing_and_the_size_is_taken_back(
    namespace: Kubectl, fixed_class: str
) -> None:
    before = start_cluster(namespace, storageClassName=fixed_class)
    enlarge(namespace, "x", "2Gi")
    until(
        lambda: resized_condition(namespace, "x").get("reason") == "ResizeRefused",
        _GROWTH_SECONDS,
        "the pool reports that its volumes cannot grow",
        show=namespace.describe,
    )
    message = resized_condition(namespace, "x")["message"]
    assert "add a StoragePool with 2Gi to spec.pools, wait until it has its copy" in message
    assert "back, as 3, 4, 3" in message
    cluster = namespace.get("waltzcluster", "log")
    assert cluster is not None
    conditions = {each["type"]: each["status"] for each in cluster["status"]["conditions"]}
    assert (conditions["Ready"], conditions["Reconciled"]) == ("True", "True")
    sets = namespace.find("statefulset", _STORAGE)
    enlarge(namespace, "x", "1Gi")
    namespace.await_condition("storagepool/x", "Resized", _GROWTH_SECONDS)
    namespace.await_condition("waltzcluster/log", "Healthy", _GROWTH_SECONDS)
    assert pods(namespace) == before, "no storage was restarted"
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in sets}
    after = namespace.find("statefulset", _STORAGE)
    assert {each["metadata"]["name"]: each["metadata"]["uid"] for each in after} == uids
