"""After an uninstall: the operator's finalizers go, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from waltz_operator.core.names import FINALIZER
from waltz_operator.shell.finalizer_removal import release_all
from waltz_operator.shell.kube_api import Conflict


def resource(kind: str, namespace: str, name: str, *finalizers: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata | {"finalizers": list(finalizers)}, "spec": {"x": 1}}


class Resources:
    """An API server that has only our resources; ``conflicts`` patches are too late."""

    def __init__(self, *held: dict[str, Any], conflicts: int = 0) -> None:
        self.held = held
        self.patched: list[tuple[str, str]] = []
        self._conflicts = conflicts

    async def find(self, kind: str, namespace: str, _: Any) -> list[dict[str, Any]]:
        wanted = (namespace, "") if namespace else ("a", "b")
        found = [each for each in self.held if each["kind"] == kind]
        return [each for each in found if each["metadata"]["namespace"] in wanted]

    async def patch(self, kind: str, namespace: str, name: str, change: dict[str, Any]) -> None:
        if self._conflicts:
            self._conflicts -= 1
            raise Conflict("somebody was faster")
        (each,) = (e for e in self.held if e["kind"] == kind and e["metadata"]["name"] == name)
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


async def release(resources: Resources, namespace: str = "") -> list[list[str]]:
    await release_all(resources, namespace)  # type: ignore[arg-type]
    assert all(each["spec"] == {"x": 1} for each in resources.held)
    return [each["metadata"]["finalizers"] for each in resources.held]


async def test_only_our_finalizer_goes_from_all_that_have_it() -> None:
    resources = Resources(*some())
    assert await release(resources) == [["others/finalizer"], [], [], []]
    assert len(resources.patched) == 3


async def test_other_namespaces_are_left_alone() -> None:
    finalizers = await release(Resources(*some()), "a")
    assert finalizers == [["others/finalizer"], [], [FINALIZER], []]


async def test_who_is_too_late_looks_again_but_not_for_ever() -> None:
    assert await release(Resources(*some(), conflicts=3)) == [["others/finalizer"], [], [], []]
    with pytest.raises(Conflict):
        await release(Resources(*some(), conflicts=100))
