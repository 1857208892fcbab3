"""Record the operator's steps as Kubernetes events. Touches the API server.

The events are for users: ``kubectl describe`` shows them. They are posted in the background and may
be lost. The cluster's status does not depend on them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from waltz.runtime.process import fail_stop_on_error
from waltz_operator.core.event_reasons import EVENT_REASONS
from waltz_operator.core.names import MANAGER
from waltz_operator.core.resources import API_VERSION, ObjectMeta, WaltzCluster
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import Step
from waltz_operator.shell.clock import utc_now
from waltz_operator.shell.kube_api import Kube, KubeError

log = logging.getLogger(__name__)

_MAX_MESSAGE_CHARACTERS = 1000
"""The length at which the message of an event is cut."""

MAX_QUEUED_EVENTS = 200
"""The number of events that wait to be posted; further events are dropped."""

_SHOWN_STEPS = 3
"""How many steps of a kind the message of an event names."""

_MAX_LAST_FAILURES = 1000
"""The number of clusters whose last failure is remembered.

A successful step removes the failure of its cluster. A cluster whose finalizer was removed by hand
has no further step, so its failure would stay forever without this bound.
"""


@dataclass(slots=True)
class _PostedChange:
    """A change of shape that is under way (`KubeEventRecorder.record_steps`)."""

    subject: tuple[ShapeChangeKind, str]
    """The kind of the change, and its pool."""

    reasons: set[str] = field(default_factory=set)
    """The reasons of the events that were posted about the change."""


class KubeEventRecorder:
    """Posts Kubernetes events about WaltzClusters.

    It implements `waltz_operator.shell.reconciler.EventRecorder`.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_QUEUED_EVENTS)
        self._last_failure: dict[str, str] = {}
        """The message of the last failure that was posted, by the uid of its cluster."""
        self._changes: dict[str, _PostedChange] = {}
        """The change of shape that is under way, by the uid of its cluster.

        An entry is removed when its change has ended. If the finalizer of the cluster is removed by
        hand during the change, the entry stays.
        """
        self.steps = 0
        """The number of steps that succeeded, for metrics."""
        self.failed_steps = 0
        """The number of steps that failed, for metrics."""

    def start(self) -> asyncio.Task[None]:
        """Start to post events; the returned task runs until it is cancelled."""
        return fail_stop_on_error(asyncio.ensure_future(self._post()))

    def record_steps(
        self, cluster: WaltzCluster, steps: Sequence[Step], change: ShapeChange | None = None
    ) -> None:
        """See EventRecorder.

        One event describes all steps of a kind: a plan may have a step per partition and storage,
        and the API server limits the rate of events.

        A *change of shape* adds, removes or rebalances storages or pools (`ShapeChange`). Such a
        change repeats the same kinds of steps for one partition after the other. So each kind is
        posted only once during a change.
        """
        uid = cluster.metadata.uid
        # This call is needed even without steps: it forgets a change that has ended.
        posted = self._track_change(uid, change)
        if not steps:
            return
        self.steps += len(steps)
        self._last_failure.pop(uid, None)
        by_reason: dict[str, list[str]] = {}
        for step in steps:
            by_reason.setdefault(EVENT_REASONS[type(step)], []).append(str(step))
        for reason, texts in by_reason.items():
            if reason in posted:
                continue
            message = "; ".join(texts[:_SHOWN_STEPS])
            if len(texts) > _SHOWN_STEPS:
                message = f"{len(texts)} steps, the first {_SHOWN_STEPS}: {message}"
            if self._enqueue(cluster.metadata, "Normal", reason, message):
                posted.add(reason)

    def _track_change(self, uid: str, change: ShapeChange | None) -> set[str]:
        """Note that ``change`` is under way; return the reasons of the events posted about it.

        The caller adds the reasons that it posts to the set. The set is empty if there is no change
        or if this change has just begun. Then the reasons of an earlier change are forgotten.
        """
        if change is None:
            self._changes.pop(uid, None)
            return set()
        subject = (change.kind, change.pool)
        known = self._changes.get(uid)
        if known is None or known.subject != subject:
            known = self._changes[uid] = _PostedChange(subject)
        return known.reasons

    def record_failed_step(self, cluster: WaltzCluster, message: str) -> None:
        """See EventRecorder. A failure with the same message as the one before is not posted."""
        self.failed_steps += 1
        self._warn(cluster.metadata, "StepFailed", message)

    def record_failed_reconcile(self, cluster: ObjectMeta, reason: str, message: str) -> None:
        """See EventRecorder. A failure with the same message as the one before is not posted."""
        self._warn(cluster, reason, message)

    def _warn(self, cluster: ObjectMeta, reason: str, message: str) -> None:
        """Post a failure, unless the last failure of the cluster has the same message."""
        if self._last_failure.get(cluster.uid) == message:
            return
        if self._enqueue(cluster, "Warning", reason, message):
            # Removed and inserted at the end, so that the dictionary's first entry is the oldest.
            self._last_failure.pop(cluster.uid, None)
            self._last_failure[cluster.uid] = message
            if len(self._last_failure) > _MAX_LAST_FAILURES:
                del self._last_failure[next(iter(self._last_failure))]

    def _enqueue(self, metadata: ObjectMeta, kind: str, reason: str, message: str) -> bool:
        """Queue an event of the kind Normal or Warning about a WaltzCluster.

        Returns False if the queue is full. Then the event is dropped, because a slow API server
        must not stop reconciles. The caller does not count a dropped event as posted, so that the
        next event with the same content is posted.
        """
        if self._queue.full():
            return False
        now = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
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
            "message": message[:_MAX_MESSAGE_CHARACTERS],
            "source": {"component": MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._queue.put_nowait(event)
        return True

    async def _post(self) -> None:
        """Post the queued events until the task is cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._kube.create(event)
            except KubeError as problem:
                involved = event["involvedObject"]
                log.warning(
                    "cluster %s/%s: failed to post the Kubernetes event %s, it is dropped: %s",
                    involved["namespace"],
                    involved["name"],
                    event["reason"],
                    problem,
                )
