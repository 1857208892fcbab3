"""Watch the API server, and enqueue the clusters whose resources or objects change.

*Resources* are the WaltzClusters and StoragePools that users write. *Objects* are what the operator
creates for them, such as pods. The library kopf watches the resources, and restarts a watch that
fails; `make_registry` returns the handlers that kopf calls. `watch_owned` watches the objects,
because kopf cannot ask the API server for the objects with a label only. Touches the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import kopf

from waltz.net.core.backoff import Backoff
from waltz_operator.core.names import CLUSTER_LABEL, MANAGER, MANAGER_LABEL
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import GROUP, VERSION
from waltz_operator.shell.api_login import log_in
from waltz_operator.shell.controller import Controller
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.reconciler import Reconciler

log = logging.getLogger(__name__)

WATCHED_KINDS = (
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)
"""The kinds of objects whose changes cause a reconcile at once.

A change of any other object is found by the next reconcile. A cluster at rest is reconciled within
10 minutes (`waltz_operator.shell.resting`).
PodDisruptionBudgets are not watched, because their status changes with every pod. Certificates are
not watched, because the kind does not exist without cert-manager.
"""

_PAUSE_SECONDS = 2.0
"""The pause before a watch is started again, and the first pause before a release is retried."""

_KOPF_WATCH_SECONDS = 300
"""The time after which the API server ends a watch of kopf."""

_KOPF_ANSWER_SECONDS = 30.0
"""How long kopf waits for a connection, and how late the end of a watch may be."""

_RELEASE_BACKOFF = Backoff(_PAUSE_SECONDS, 30.0)
"""The pauses in seconds between attempts to release a pool."""


@dataclass(frozen=True, slots=True)
class _SeenObject:
    """An object that a watch has yielded: its version, its namespace and its cluster's name."""

    version: str
    namespace: str
    cluster: str


class _SeenResources:
    """The resources of one kind as kopf has reported them last, without their statuses.

    Only the operator writes the statuses, so their changes need no reconcile. If each written
    status caused one, a cluster whose status changes all the time would be reconciled without a
    pause.
    """

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, str], int] = {}
        """A hash of each resource, by namespace and name."""

    def note(self, namespace: str, name: str, body: kopf.Body, event: kopf.RawEvent) -> bool:
        """Note an event; return whether more than the status of its resource has changed."""
        if event["type"] == "DELETED":
            self._hashes.pop((namespace, name), None)
            return True
        metadata = body.metadata
        # The API server increases the generation with every change of the spec.
        current = hash(
            (
                metadata.get("uid"),
                metadata.get("generation"),
                metadata.get("deletionTimestamp"),
                tuple(metadata.get("finalizers") or ()),
                frozenset(metadata.labels.items()),
                frozenset(metadata.annotations.items()),
            )
        )
        has_changed = self._hashes.get((namespace, name)) != current
        self._hashes[namespace, name] = current
        return has_changed


class ChangeSource(Protocol):
    """A source of changed objects, such as `waltz_operator.shell.kube_api.ApiServer`."""

    def changes(
        self, kind: str, namespace: str, labels: Mapping[str, str]
    ) -> AsyncIterator[LiveObject]:
        """Yield all objects with ``labels``, then those that change, until the watch ends.

        Raises KubeError.
        """


class ReconcileQueue(Protocol):
    """Takes the names of clusters to reconcile, as `Controller` does."""

    def enqueue(self, namespace: str, name: str) -> None:
        """Reconcile a cluster soon."""


class PoolReleaser(Protocol):
    """Releases deleted pools, as `Reconciler` does."""

    async def release_orphaned_pool(self, namespace: str, name: str) -> None:
        """Release a deleted pool whose cluster no longer exists. Raises KubeError."""


def make_registry(
    controller: Controller, reconciler: Reconciler, watched_namespace: str
) -> kopf.OperatorRegistry:
    """Return the handlers that kopf calls. An empty ``watched_namespace`` means all namespaces."""
    registry = kopf.OperatorRegistry()
    clusters, pools = _SeenResources(), _SeenResources()
    # The owners of the pools as reported last, by the pool's namespace and name.
    owners: dict[tuple[str, str], str] = {}

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return log_in()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        # The operator records events of its own; kopf would post its log lines, too.
        settings.posting.enabled = False
        settings.watching.server_timeout = _KOPF_WATCH_SECONDS
        # Without these timeouts a watch whose connection was silently lost would never end.
        settings.watching.client_timeout = _KOPF_WATCH_SECONDS + _KOPF_ANSWER_SECONDS
        settings.watching.connect_timeout = _KOPF_ANSWER_SECONDS
        # An operator of one namespace has no right to list namespaces and kinds.
        settings.scanning.disabled = bool(watched_namespace)

    @kopf.on.event(GROUP, VERSION, "waltzclusters", registry=registry)
    async def cluster_changed(
        *, namespace: str | None, name: str, body: kopf.Body, event: kopf.RawEvent, **_: Any
    ) -> None:
        # kopf passes None only for resources without a namespace; clusters and pools have one.
        assert namespace is not None
        if clusters.note(namespace, name, body, event):
            controller.enqueue(namespace, name)

    @kopf.on.event(GROUP, VERSION, "storagepools", registry=registry)
    async def pool_changed(
        *, namespace: str | None, name: str, body: kopf.Body, event: kopf.RawEvent, **_: Any
    ) -> None:
        assert namespace is not None
        # The owner is the cluster that has claimed the pool. A pool without an owner causes no
        # reconcile: a cluster whose spec names the pool still waits to claim it, so it is not at
        # rest and is reconciled soon anyway. A cluster that has lost the pool may be at rest. It
        # claims the pool again, with the finalizer that delays a deletion.
        owner = body.metadata.labels.get(CLUSTER_LABEL)
        former = owners.pop((namespace, name), None)
        if owner is not None and event["type"] != "DELETED":
            owners[namespace, name] = owner
        if pools.note(namespace, name, body, event):
            for cluster in dict.fromkeys((former, owner)):
                if cluster is not None:
                    controller.enqueue(namespace, cluster)
        if body.metadata.get("deletionTimestamp"):
            await release_orphaned_pool(reconciler, namespace, name)

    return registry


async def release_orphaned_pool(reconciler: PoolReleaser, namespace: str, name: str) -> None:
    """Release a deleted pool whose cluster no longer exists; retry until the release succeeds.

    kopf calls a handler once for each event, and only clusters are reconciled periodically: without
    these retries the pool would keep its finalizer.
    """
    for pause in _RELEASE_BACKOFF.delays():
        try:
            await reconciler.release_orphaned_pool(namespace, name)
        except KubeError as problem:
            log.warning(
                "StoragePool %s/%s: failed to remove the finalizer, retrying in %g s: %s",
                namespace,
                name,
                pause,
                problem,
            )
            await asyncio.sleep(pause)
        else:
            return


async def watch_owned(
    kube: ChangeSource,
    kind: str,
    namespace: str,
    queue: ReconcileQueue,
    progress: Callable[[str], None],
    *,
    pause: float = _PAUSE_SECONDS,
) -> None:
    """Enqueue the cluster of every object of ``kind`` that changes, until the task is cancelled.

    ``progress`` is called with the kind when a watch begins. The API server ends every watch after
    some minutes. So a watch is stuck if ``progress`` is not called for longer
    (`waltz_operator.shell.liveness`).

    A watch that ends or fails is started again after ``pause`` seconds. A new watch yields all
    existing objects first. Objects that have not changed since the earlier watch cause no
    reconcile. An object that was deleted between two watches causes a reconcile when the second
    watch ends.
    """
    # Both are by uid: the objects known from earlier watches, and those of the present watch.
    known: dict[str, _SeenObject] = {}
    while True:
        progress(kind)
        yielded: dict[str, _SeenObject] = {}
        try:
            async for live in kube.changes(kind, namespace, {MANAGER_LABEL: MANAGER}):
                metadata = live.get("metadata") or {}
                cluster = (metadata.get("labels") or {}).get(CLUSTER_LABEL)
                if cluster is None:
                    # Not an object of a cluster: for example the Status with which the API server
                    # reports an error before it ends a watch.
                    continue
                uid = metadata["uid"]
                current = _SeenObject(metadata["resourceVersion"], metadata["namespace"], cluster)
                if current != known.get(uid):
                    queue.enqueue(current.namespace, current.cluster)
                yielded[uid] = current
            # A watch yields all existing objects first, so the other known ones were deleted before
            # it began. If it ended early instead, a needless reconcile does no harm.
            for uid, earlier in known.items():
                if uid not in yielded:
                    queue.enqueue(earlier.namespace, earlier.cluster)
            known = yielded
        except KubeError as problem:
            log.warning("watch of %s failed, restarting in %g s: %s", kind, pause, problem)
            # The watch may have failed before it yielded all existing objects, so the others stay
            # known.
            known |= yielded
        await asyncio.sleep(pause)
