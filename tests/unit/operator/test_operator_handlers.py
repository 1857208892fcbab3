"""What kopf's handlers do with the events of resources, and how kopf watches."""

from __future__ import annotations

from typing import Any, cast

import kopf
import pytest

from tests.support.operator_world import NAMESPACE
from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.shell.controller import Controller
from waltz_operator.shell.handlers import make_registry
from waltz_operator.shell.reconciler import Reconciler


class Calls:
    """A controller and a reconciler that record their calls."""

    def __init__(self) -> None:
        self.enqueued: list[tuple[str, str]] = []
        self.released: list[tuple[str, str]] = []

    def enqueue(self, namespace: str, name: str) -> None:
        self.enqueued.append((namespace, name))

    async def release_orphaned_pool(self, namespace: str, name: str) -> None:
        self.released.append((namespace, name))


def registry(calls: Calls, watched_namespace: str = "") -> kopf.OperatorRegistry:
    return make_registry(cast(Controller, calls), cast(Reconciler, calls), watched_namespace)


async def handle(
    made: kopf.OperatorRegistry,
    plural: str,
    *,
    kind: str | None = "MODIFIED",
    status: object = None,
    spec: object = None,
    **metadata: Any,
) -> None:
    """Call the handlers for an event of a resource, which has this kind."""
    found = [
        each for each in cast(Any, made)._watching._handlers if each.selector.any_name == plural
    ]
    assert found
    live: Any = {
        "metadata": {"namespace": NAMESPACE, "name": "x", **metadata},
        "spec": spec or {},
        "status": status or {},
    }
    event = {"type": kind, "object": live}
    for each in found:
        await each.fn(namespace=NAMESPACE, name="x", body=kopf.Body(live), event=event)


async def test_changed_cluster_is_enqueued() -> None:
    calls = Calls()
    await handle(registry(calls), "waltzclusters")
    assert (calls.enqueued, calls.released) == ([(NAMESPACE, "x")], [])


async def test_changed_pool_enqueues_the_cluster_that_has_claimed_it() -> None:
    calls = Calls()
    await handle(registry(calls), "storagepools", labels={CLUSTER_LABEL: "log"})
    assert (calls.enqueued, calls.released) == ([(NAMESPACE, "log")], [])
    await handle(registry(calls), "storagepools")
    assert (calls.enqueued, calls.released) == ([(NAMESPACE, "log")], [])


@pytest.mark.parametrize(("labels", "present"), [({}, []), ({CLUSTER_LABEL: "other"}, ["other"])])
async def test_pool_that_loses_its_label_enqueues_the_cluster_that_had_claimed_it(
    labels: dict[str, str], present: list[str]
) -> None:
    calls = Calls()
    made = registry(calls)
    await handle(made, "storagepools", labels={CLUSTER_LABEL: "log"})
    calls.enqueued.clear()
    await handle(made, "storagepools", labels=labels)
    assert calls.enqueued == [(NAMESPACE, cluster) for cluster in ("log", *present)]
    calls.enqueued.clear()
    await handle(made, "storagepools", labels=labels, generation=2)
    assert calls.enqueued == [(NAMESPACE, cluster) for cluster in present], "only once"


@pytest.mark.parametrize("plural", ["waltzclusters", "storagepools"])
async def test_written_status_of_a_resource_enqueues_nothing(plural: str) -> None:
    """The operator writes it: otherwise each reconcile that writes one would cause the next one."""
    calls = Calls()
    metadata: dict[str, Any] = {"uid": "1", "generation": 1, "labels": {CLUSTER_LABEL: "x"}}
    made = registry(calls)
    await handle(made, plural, kind=None, resourceVersion="1", **metadata)
    assert len(calls.enqueued) == 1
    for version in "234":
        await handle(made, plural, resourceVersion=version, status={"message": version}, **metadata)
    # kopf lists the resources again after each end of its watch.
    await handle(made, plural, kind=None, resourceVersion="4", **metadata)
    assert len(calls.enqueued) == 1


@pytest.mark.parametrize("plural", ["waltzclusters", "storagepools"])
@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"annotations": {"waltz.dev/resync": "1"}},
        {"labels": {CLUSTER_LABEL: "x", "team": "orders"}},
        {"finalizers": []},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"uid": "2"},
        {"kind": "DELETED"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_any_other_change_of_a_resource_enqueues_the_cluster(
    plural: str, change: dict[str, Any]
) -> None:
    calls = Calls()
    made = registry(calls)
    before: dict[str, Any] = {
        "uid": "1",
        "generation": 1,
        "labels": {CLUSTER_LABEL: "x"},
        "finalizers": ["waltz.dev/cluster"],
    }
    await handle(made, plural, **before)
    await handle(made, plural, **before | change)
    assert calls.enqueued == [(NAMESPACE, "x")] * 2


async def test_cluster_that_is_created_again_is_enqueued() -> None:
    calls = Calls()
    made = registry(calls)
    for kind in ("ADDED", "DELETED", "ADDED"):
        await handle(made, "waltzclusters", kind=kind, generation=1)
    assert len(calls.enqueued) == 3


@pytest.mark.parametrize("labels", [{}, {CLUSTER_LABEL: "log"}])
async def test_deleted_pool_is_released_if_its_cluster_is_gone(labels: dict[str, str]) -> None:
    calls = Calls()
    deleted = "2026-01-01T00:00:00Z"
    await handle(registry(calls), "storagepools", labels=labels, deletionTimestamp=deleted)
    assert calls.released == [(NAMESPACE, "x")]
    assert len(calls.enqueued) == len(labels)


@pytest.mark.parametrize("namespace", ["", "logs"])
async def test_kopf_has_timeouts_and_scans_only_if_it_watches_all_namespaces(
    namespace: str,
) -> None:
    settings = kopf.OperatorSettings()
    made = cast(Any, registry(Calls(), namespace))
    (configure,) = [e for e in made._activities._handlers if "startup" in str(e.activity)]
    await configure.fn(settings=settings)
    assert not settings.posting.enabled
    assert settings.scanning.disabled is bool(namespace)
    watching = settings.watching
    assert watching.server_timeout == 300
    assert watching.client_timeout == 330, "later than the server's own end of the watch"
    assert watching.connect_timeout == 30
