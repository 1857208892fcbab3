"""Change the shape of a cluster: which pools it has, and how many storages. Starts programs.

`e2e.shapes.test_changes` and `e2e.test_shape` use this module. A `ShapeChange` leads from one
`Shape` over others to the last one. There are the pools ``v`` to ``z``, of which each shape uses
some. A storage that a change removes keeps its volume.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.waiting import until

PARTITIONS = 3
_BEGIN_SECONDS = 120.0
_CHANGE_SECONDS = 420.0
_HEALTHY_SECONDS = 300.0
_CLUSTER = "log"


@dataclass(frozen=True, slots=True)
class Shape:
    """The pools of a cluster, one letter each, and how many storages the first of them has.

    The other pools have one storage each.
    """

    pools: str
    storages_of_first: int = 1

    @property
    def num_storages(self) -> int:
        """The number of all storages."""
        return len(self.pools) - 1 + self.storages_of_first


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """The shapes of a cluster, one after the other; ``name`` says what changes."""

    name: str
    shapes: tuple[Shape, ...]


ONE_POOL_TO_THREE = ShapeChange("one pool to three", (Shape("x"), Shape("xyz")))
THREE_POOLS_TO_FIVE_TO_THREE = ShapeChange(
    "three pools to five to three", (Shape("xyz"), Shape("xyzvw"), Shape("xyz"))
)
STORAGES_OF_A_POOL = ShapeChange(
    "one storage to three to two to three",
    (Shape("xyz"), Shape("xyz", 3), Shape("xyz", 2), Shape("xyz", 3)),
)
CHANGES = (ONE_POOL_TO_THREE, THREE_POOLS_TO_FIVE_TO_THREE, STORAGES_OF_A_POOL)


def create(namespace: Kubectl, shape: Shape) -> None:
    """Create a cluster of ``shape`` with two servers; return when it is Healthy."""
    namespace.apply(
        *(resources.pool(name) for name in "vwxyz"),
        resources.cluster(
            _CLUSTER, list(shape.pools), partitions=PARTITIONS, servers={"replicas": 2}
        ),
    )
    namespace.await_condition(f"waltzcluster/{_CLUSTER}", "Healthy", _HEALTHY_SECONDS)


def request(namespace: Kubectl, shape: Shape) -> None:
    """Write ``shape`` into the specs; return before the cluster has it."""
    namespace.patch("storagepool", shape.pools[0], {"spec": {"storages": shape.storages_of_first}})
    namespace.patch("waltzcluster", _CLUSTER, {"spec": {"pools": list(shape.pools)}})


def await_begun(namespace: Kubectl, text: str = "partition") -> None:
    """Return when the cluster's status says that the change moves replicas.

    ``text`` is a part of the status, which names a partition while its replicas are moved.
    """

    def begun() -> bool:
        cluster = namespace.get("waltzcluster", _CLUSTER)
        assert cluster is not None
        return text in cluster["status"].get("change", "")

    until(begun, _BEGIN_SECONDS, f"the change shows {text!r}", show=namespace.describe)


def await_shape(namespace: Kubectl, shape: Shape) -> None:
    """Return when the cluster is Healthy and has ``shape``."""
    replicas = {f"{pool}-storage": 1 for pool in shape.pools}
    replicas[f"{shape.pools[0]}-storage"] = shape.storages_of_first

    def reached() -> bool:
        cluster = namespace.get("waltzcluster", _CLUSTER)
        assert cluster is not None
        status = cluster["status"]
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        pools = namespace.find("storagepool", f"waltz.dev/cluster={_CLUSTER}")
        return (
            status["observedGeneration"] == cluster["metadata"]["generation"]
            and conditions["Changing"] == "False"
            and conditions["Healthy"] == "True"
            and {pool["metadata"]["name"] for pool in pools} == set(shape.pools)
            and replicas_by_set(namespace) == replicas
            and status["storages"] == f"{shape.num_storages}/{shape.num_storages}"
        )

    until(reached, _CHANGE_SECONDS, f"the cluster has {shape}", show=namespace.describe)


def replicas_by_set(namespace: Kubectl) -> dict[str, int]:
    """Return the number of pods of each StatefulSet of storages."""
    listed = namespace.find("statefulset", "waltz.dev/component=storage")
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in listed}


def pods(namespace: Kubectl, component: str) -> list[str]:
    """Return the names of the running pods of a component: ``storage`` or ``server``."""
    listed = namespace.find("pod", f"waltz.dev/component={component}")
    return [each["metadata"]["name"] for each in listed if each["status"]["phase"] == "Running"]
