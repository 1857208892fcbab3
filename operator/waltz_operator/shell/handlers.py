"""What kopf watches for the operator: the resources that users write. Touches the API server.

kopf brings the watches of these resources, with all that can go wrong with watches; its handlers
only give hints. Owned objects are watched here, selected by label on the server, which kopf does
not do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import kopf

from waltz_operator.core.names import CLUSTER_LABEL, MANAGER, MANAGER_LABEL
from waltz_operator.core.observed import Live
from waltz_operator.core.resources import GROUP, VERSION
from waltz_operator.shell.controller import Lookout
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.reconciler import Reconciler

log = logging.getLogger(__name__)

WATCHED_KINDS = ("Deployment", "Pod", "Service", "StatefulSet")
"""Kinds whose changes matter at once; those of others are found when all is looked at again."""

_PAUSE_SECONDS = 2.0


class Watching(Protocol):
    """What can be asked for changes, as `waltz_operator.shell.kube_api.ApiServer` can."""

    def changes(self, kind: str, namespace: str, labels: Mapping[str, str]) -> AsyncIterator[Live]:
        """Yield objects that change, until the watch ends. Raises KubeError."""


class Hinted(Protocol):
    """Who is told which cluster to look at, as `Lookout` is."""

    def hint(self, namespace: str, name: str) -> None:
        """Look at a cluster soon."""


def make_registry(
    lookout: Lookout, reconciler: Reconciler, watched_namespace: str
) -> kopf.OperatorRegistry:
    """Return what kopf is to call."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**known: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.watching.server_timeout = 300
        # Whoever looks after one namespace may not see which others and which kinds there are.
        settings.scanning.disabled = bool(watched_namespace)

    @kopf.on.event(GROUP, VERSION, "waltzclusters", registry=registry)
    async def cluster_changed(*, namespace: str | None, name: str, **_: Any) -> None:
        assert namespace is not None
        lookout.hint(namespace, name)

    @kopf.on.event(GROUP, VERSION, "storagepools", registry=registry)
    async def pool_changed(*, namespace: str | None, name: str, body: kopf.Body, **_: Any) -> None:
        assert namespace is not None
        owner = body.metadata.labels.get(CLUSTER_LABEL)
        if owner is not None:
            lookout.hint(namespace, owner)
        if body.metadata.get("deletionTimestamp"):
            try:
                await reconciler.release_deserted(namespace, name)
            except KubeError as problem:
                raise kopf.TemporaryError(str(problem), delay=_PAUSE_SECONDS) from problem

    return registry


async def watch_owned(
    kube: Watching, kind: str, namespace: str, lookout: Hinted, *, pause: float = _PAUSE_SECONDS
) -> None:
    """Hint at the cluster of every object of this kind that changes; ends only by cancelling.

    A watch that ends or breaks is begun again after ``pause`` seconds; a new one tells first of all
    that there is, so that nothing which has changed meanwhile is missed, but what was deleted.
    """
    while True:
        try:
            async for live in kube.changes(kind, namespace, {MANAGER_LABEL: MANAGER}):
                metadata = live.get("metadata") or {}
                owner = (metadata.get("labels") or {}).get(CLUSTER_LABEL)
                if owner is not None:
                    lookout.hint(metadata["namespace"], owner)
        except KubeError as problem:
            log.warning("%s", problem)
        await asyncio.sleep(pause)
