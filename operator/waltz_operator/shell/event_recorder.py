"""Tells people what happens to their clusters: events in Kubernetes. Touches the API server.

Events are made beside the work and may be lost; whatever matters is in the status, too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

from waltz.runtime.process import watched
from waltz_operator.core.names import MANAGER
from waltz_operator.core.resources import API_VERSION, WaltzCluster
from waltz_operator.core.steps import Step
from waltz_operator.shell.kube_api import Kube, KubeError
from waltz_operator.shell.reconciler import utc_now

log = logging.getLogger(__name__)

_LONGEST = 1000
_MOST_WAITING = 200


class EventDiary:
    """A diary whose entries are events of the cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self._last_failure: dict[str, str] = {}
        self.steps = 0
        self.failed_steps = 0

    def start(self) -> asyncio.Task[None]:
        """Begin to post; the task ends only by being cancelled."""
        return watched(asyncio.ensure_future(self._post()))

    def did(self, cluster: WaltzCluster, step: Step) -> None:
        """See Diary."""
        self.steps += 1
        self._last_failure.pop(cluster.metadata.uid, None)
        self._add(cluster, "Normal", type(step).__name__, str(step))

    def failed(self, cluster: WaltzCluster, reason: str) -> None:
        """See Diary. The same failure is told once."""
        self.failed_steps += 1
        if self._last_failure.get(cluster.metadata.uid) != reason:
            self._last_failure[cluster.metadata.uid] = reason
            self._add(cluster, "Warning", "StepFailed", reason)

    def _add(self, cluster: WaltzCluster, kind: str, reason: str, message: str) -> None:
        metadata, now = cluster.metadata, utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata.name}.{uuid.uuid4().hex[:16]}",
                "namespace": metadata.namespace,
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "WaltzCluster",
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST],
            "source": {"component": MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        if not self._waiting.full():
            self._waiting.put_nowait(event)

    async def _post(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                await self._kube.create(event)
            except KubeError as problem:
                log.warning("an event could not be told: %s", problem)
