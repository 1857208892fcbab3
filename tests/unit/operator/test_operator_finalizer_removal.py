"""Test that finalizer removal removes only the operator's finalizers."""

from __future__ import annotations

from typing import Any

import pytest

from waltz_operator.core.names import FINALIZER
from waltz_operator.shell.finalizer_removal import remove_finalizers
from waltz_operator.shell.kube_api import Conflict, NotFound


def resource(kind: str, namespace: str, name: str, *finalizers: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata | {"finalizers": list(finalizers)}, "spec": {"x": 1}}


class Resources:
    """An API server with our resources only; the first ``conflicts`` patches raise Conflict."""

    def __init__(self, *resources: dict[str, Any], conflicts: int = 0) -> None:
        self.resources = resources
        self.patched: list[tuple[str, str]] = []
        self.deleted: set[str] = set()
        """The names of the resources that were deleted after they were listed."""
        self._conflicts = conflicts

    async def find(self, kind: str, namespace: str, _: Any) -> list[dict[str, Any]]:
        wanted = (namespace, "") if namespace else ("a", "b")
        found = [each for each in self.resources if each["kind"] == kind]
        return [each for each in found if each["metadata"]["namespace"] in wanted]

    async def patch(self, kind: str, namespace: str, name: str, change: dict[str, Any]) -> None:
        if name in self.deleted:
            raise NotFound("the resource does not exist")
        if self._conflicts:
            self._conflicts -= 1
            raise Conflict("the resource has changed")
        (each,) = (e for e in self.resources if e["kind"] == kind and e["metadata"]["name"] == name)
        assert change["metadata"].pop("resourceVersion") == each["metadata"]["resourceVersion"]
        each["metadata"] |= change["metadata"]
        self.patched.append((namespace, name))


def some() -> list[dict[str, Any]]:
    return [
        resource("WaltzCluster", "a", "log", FINALIZER, "others/finalizer"),
        resource("StoragePool", "a", "p", FINALIZER),
        resource("StoragePool", "b", "q", FINALIZER),
        resource("StoragePool", "b", "unused"),
    ]


async def remove(resources: Resources, namespace: str = "") -> list[list[str]]:
    await remove_finalizers(resources, namespace)  # type: ignore[arg-type]
    assert all(each["spec"] == {"x": 1} for each in resources.resources)
    return [each["metadata"]["finalizers"] for each in resources.resources]


async def test_removal_takes_our_finalizer_from_every_resource_and_no_other() -> None:
    resources = Resources(*some())
    assert await remove(resources) == [["others/finalizer"], [], [], []]
    assert len(resources.patched) == 3


async def test_removal_in_one_namespace_leaves_the_others_unchanged() -> None:
    finalizers = await remove(Resources(*some()), "a")
    assert finalizers == [["others/finalizer"], [], [FINALIZER], []]


async def test_resource_that_is_deleted_meanwhile_does_not_stop_the_removal() -> None:
    resources = Resources(*some())
    resources.deleted = {"log", "p"}
    await remove(resources)
    assert resources.patched == [("b", "q")]


async def test_conflicts_are_retried_a_bounded_number_of_times() -> None:
    assert await remove(Resources(*some(), conflicts=3)) == [["others/finalizer"], [], [], []]
    with pytest.raises(Conflict):
        await remove(Resources(*some(), conflicts=100))
