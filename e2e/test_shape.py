"""Test changes of a cluster's pools and storages while a witness (`e2e.witness`) appends and reads.

Each pool holds one copy of all partitions. `e2e.shapes` has the tests of larger changes.
"""

from __future__ import annotations

import pytest

from e2e import resources
from e2e.killing import killed_operators
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.shapes.changes import Shape, await_begun, await_shape, replicas_by_set
from e2e.witnessing import Witness

_PARTITIONS = 3


@pytest.fixture
def served(namespace: Kubectl) -> Kubectl:
    """The namespace of a Healthy cluster of three pools."""
    namespace.apply(
        *(resources.pool(name) for name in "xyz"),
        resources.cluster("log", list("xyz"), partitions=_PARTITIONS),
    )
    namespace.await_condition("waltzcluster/log", "Healthy", 300)
    return namespace


def claims(namespace: Kubectl) -> set[str]:
    """Return the names of the storages' volume claims."""
    listed = namespace.find("persistentvolumeclaim", "waltz.dev/component=storage")
    return {each["metadata"]["name"] for each in listed}


def replace_pool(namespace: Kubectl) -> None:
    """Request the pool w, with larger volumes, in place of z, whose volumes are deleted."""
    namespace.patch("storagepool", "z", {"spec": {"volumes": {"onScaleDown": "Delete"}}})
    namespace.apply(resources.pool("w", volumes={"data": {"size": "2Gi"}}))
    namespace.patch("waltzcluster", "log", {"spec": {"pools": ["x", "y", "w"]}})


def check_replaced(namespace: Kubectl, witness: Witness) -> None:
    """Wait until the change that `replace_pool` has requested is complete, and check it."""
    await_shape(namespace, Shape("xyw"))
    assert replicas_by_set(namespace) == {"x-storage": 1, "y-storage": 1, "w-storage": 1}
    assert "data-z-storage-0" not in claims(namespace)
    released = namespace.get("storagepool", "z")
    assert released is not None
    assert "status" not in released, "a released pool no longer names the cluster"
    witness.await_progress(60)
    witness.finish()


def test_pool_reverted_half_way_returns_to_the_old_copies(served: Kubectl) -> None:
    witness = Witness(served)
    witness.start("log")
    replace_pool(served)

    await_begun(served, "pool w: partition")
    served.patch("waltzcluster", "log", {"spec": {"pools": ["x", "y", "z"]}})
    await_shape(served, Shape("xyz"))
    assert replicas_by_set(served) == {"x-storage": 1, "y-storage": 1, "z-storage": 1}
    assert "data-w-storage-0" in claims(served), "the volume of w is kept"
    witness.await_progress(60)
    witness.finish()


def test_pool_scaled_up_and_down_under_load_loses_nothing(served: Kubectl) -> None:
    witness = Witness(served)
    witness.start("log")
    served.patch("storagepool", "x", {"spec": {"storages": 2}})
    await_shape(served, Shape("xyz", 2))
    served.patch("storagepool", "x", {"spec": {"storages": 1}})
    await_shape(served, Shape("xyz"))
    assert replicas_by_set(served)["x-storage"] == 1
    assert "data-x-storage-1" in claims(served), "the volume is kept"
    witness.await_progress(60)
    witness.finish()


def test_replaced_pool_with_operator_killed_after_every_step_loses_nothing(
    own_operator: Operator, served: Kubectl
) -> None:
    witness = Witness(served)
    witness.start("log")
    with killed_operators(own_operator) as killed:
        replace_pool(served)
        check_replaced(served, witness)
    assert killed.count >= 2 * _PARTITIONS, "each partition gets a replica and loses one"
