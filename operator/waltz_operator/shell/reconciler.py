"""Reconcile one cluster once: read the state, plan, perform the steps, write the status.

Touches the API server, and what `Environment` touches. Nothing is lost when an operator is killed
at any instruction and another one continues (shown by
test_operator_killed_after_any_call_reaches_ready and e2e/test_operator_killed.py).

Between two reconciles this module remembers two things. One is the state of clusters *at rest*,
which are paused or need nothing: with it, `Reconciler.check` needs no objects from the API server.
The other is since when errors of the API server have ended every reconcile of a cluster.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from waltz.admin.core.steps import CopyReplica
from waltz_operator.core import planning
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.core.observed import LiveObject, ObservedCluster
from waltz_operator.core.pool_status import pool_status
from waltz_operator.core.resources import ClusterStatus, ObjectMeta, StoragePool, WaltzCluster
from waltz_operator.core.shape_change import ShapeChange
from waltz_operator.core.status import cluster_status, failed_status
from waltz_operator.core.steps import (
    ClusterPlan,
    CompareReplica,
    ReleasePool,
    RemoveFinalizer,
    Step,
    stops,
)
from waltz_operator.shell.clock import utc_now
from waltz_operator.shell.controller import PersistentApiError, ReconcileResult
from waltz_operator.shell.desired_reader import InvalidResource, read_desired
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.executor import Executor, StepFailed, perform_on_pool
from waltz_operator.shell.kube_api import Kube, KubeError
from waltz_operator.shell.observer import observe, observe_metadata
from waltz_operator.shell.resting import RestingCluster, pack
from waltz_operator.shell.status_writer import write_status

log = logging.getLogger(__name__)

BUSY_REQUEUE_SECONDS = 1.0
"""The first pause before the next reconcile while the plan is not done (`ClusterPlan.done`).

The pauses grow while neither the plan nor an observed object changes (`ReconcileResult.state`). If
a reconcile has written a status, the next one follows after this pause, too.
"""

TRANSFER_REQUEUE_SECONDS = 0.0
"""The pause before the next reconcile after a part of a replica was copied or compared.

Such a step ends after some seconds only to let the cluster be observed. The plan stays the same
until the last part, so a longer pause would grow from part to part.
"""

IDLE_REQUEUE_SECONDS = 15.0
"""The pause before the next `Reconciler.check` while the plan is done.

If the check finds a change, or the last reconcile was 10 minutes ago, a reconcile follows at once.
This is also the pause before the next reconcile of a cluster whose resource is invalid.
"""

_PERSISTENT_ERROR_SECONDS = 15.0
"""The time after which errors of the API server, in every reconcile of a cluster, are reported.

A short outage says nothing about the cluster. If the API server does not answer at all, the
operator loses the Lease before this time. So errors that persist longer concern single requests,
for example requests that the rules of RBAC forbid.
"""


class EventRecorder(Protocol):
    """Records the operator's steps for the users of a cluster."""

    def record_steps(
        self, cluster: WaltzCluster, steps: Sequence[Step], change: ShapeChange | None = None
    ) -> None:
        """Record the steps that succeeded in one reconcile.

        ``change`` is the change of the cluster's shape that is under way, None if there is none.
        """

    def record_failed_step(self, cluster: WaltzCluster, message: str) -> None:
        """Record that a step failed; ``message`` names the step and says why. It is retried."""

    def record_failed_reconcile(self, cluster: ObjectMeta, reason: str, message: str) -> None:
        """Record that a reconcile failed; the operator retries it.

        ``reason`` is one word, as in a condition; ``message`` is a sentence.
        """


class Reconciler:
    """Reconciles clusters; ``operator_namespace`` is the namespace in which the operator runs."""

    def __init__(
        self,
        kube: Kube,
        environment: Environment,
        recorder: EventRecorder,
        *,
        operator_namespace: str,
        clock: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._kube = kube
        self._environment = environment
        self._recorder = recorder
        self._operator_namespace = operator_namespace
        self._clock = clock
        self._resting: dict[tuple[str, str], RestingCluster] = {}
        """The clusters at rest, by namespace and name."""
        self._failing_since: dict[tuple[str, str], datetime.datetime] = {}
        """Since when an error of the API server has ended every reconcile of these clusters."""

    async def reconcile(self, namespace: str, name: str) -> ReconcileResult | None:
        """Reconcile a cluster once; return None if it no longer exists.

        Raises KubeError if the API server returns an error or does not answer. After a while of
        such errors, raises PersistentApiError instead, and reports it in the status and by an
        event, if possible. Any other exception is unexpected: it is reported at once, then raised.
        """
        # Removed first: after an error of this reconcile, `check` must not use the earlier state.
        self._resting.pop((namespace, name), None)
        failing_since = self._failing_since.pop((namespace, name), None)
        live: LiveObject | None = None
        try:
            live = await self._kube.get("WaltzCluster", namespace, name)
            return await self._reconcile_live(namespace, name, live)
        except KubeError as problem:
            now = self._clock()
            # If the clock was set back meanwhile, the present time is the earlier one.
            since = now if failing_since is None else min(failing_since, now)
            self._failing_since[namespace, name] = since
            if (now - since).total_seconds() < _PERSISTENT_ERROR_SECONDS:
                raise
            if live is not None:
                text = (
                    "the API server's errors end every reconcile, nothing is changed, retrying: "
                    f"{problem}"
                )
                await self._report_failure(live, "ApiServerError", text)
            raise PersistentApiError(str(problem)) from problem

    async def _reconcile_live(
        self, namespace: str, name: str, live: LiveObject | None
    ) -> ReconcileResult | None:
        """Reconcile ``live``, and report any failure except a KubeError, which is raised.

        ``live`` is None if the WaltzCluster no longer exists: then release its deleted pools.
        """
        if live is None:
            # `RemoveFinalizer` closes the connections, but a user may remove the finalizer, too.
            await self._environment.disconnect(namespace, name)
            # No further event comes for a pool that was deleted while the cluster existed.
            for pool in await self._kube.find("StoragePool", namespace, {CLUSTER_LABEL: name}):
                await self.release_orphaned_pool(namespace, pool["metadata"]["name"])
            return None
        try:
            return await self._reconcile(live)
        except KubeError:
            raise
        except InvalidResource as invalid:
            log.error(
                "cluster %s/%s: invalid resource, not reconciled until it is corrected: %s",
                namespace,
                name,
                invalid,
            )
            await self._report_failure(live, "InvalidResource", str(invalid))
            return ReconcileResult(IDLE_REQUEUE_SECONDS, ready=False)
        except Exception as problem:
            text = (
                f"the reconcile failed unexpectedly, retrying: {type(problem).__name__}: {problem};"
                " the operator's log has the traceback"
            )
            await self._report_failure(live, "ReconcileFailed", text)
            raise

    async def _reconcile(self, live: LiveObject) -> ReconcileResult | None:
        """Reconcile the WaltzCluster ``live``; return None if its finalizer was removed."""
        desired = await read_desired(self._kube, live, self._operator_namespace)
        begun = self._clock()
        observed = await observe(desired, self._kube, self._environment, begun)
        plan = planning.plan(desired, observed)
        succeeded, failure = await self._perform(desired, plan)
        if failure is None and RemoveFinalizer() in plan.steps:
            return None
        ready, write_results = await self._write_statuses(desired, observed, plan, failure)
        if any(isinstance(step, CopyReplica | CompareReplica) for step in succeeded):
            return ReconcileResult(TRANSFER_REQUEUE_SECONDS, ready)
        # Only a write that succeeded counts: one that always fails must not keep the pauses short.
        has_written = any(write_results)
        requeue = IDLE_REQUEUE_SECONDS if plan.done and not has_written else BUSY_REQUEUE_SECONDS
        state = None if has_written else _identify_state(observed, plan, failure)
        result = ReconcileResult(requeue, ready, state)
        is_at_rest = plan.done or desired.cluster.spec.paused
        # Not after a write: `desired` has the status from before it. If that status became right
        # again, `check` would see no change and not write it. Not during a deletion: its plan needs
        # `ObservedCluster.deleting_seconds`, which `RestingCluster` does not keep.
        if is_at_rest and not write_results and not desired.deleting:
            key = (desired.namespace, desired.name)
            self._resting[key] = pack(desired, plan, result, observed, begun)
        return result

    async def check(self, namespace: str, name: str) -> ReconcileResult | None:
        """Check a cluster at rest; return None if it has changed, so that it must be reconciled.

        The check reads no objects from the API server, because the watches report changed objects.
        It observes ZooKeeper, servers and storages, performs no step and writes no status. It reads
        secrets only to replace a lost session with ZooKeeper. Raises KubeError.
        """
        # The state is removed until the check has succeeded: after an error, a reconcile follows.
        resting = self._resting.pop((namespace, name), None)
        if resting is None or resting.is_outdated(self._clock()):
            return None
        desired = resting.desired
        observed = await observe_metadata(desired, resting.observed(), self._environment)
        plan = planning.plan(desired, observed)
        _, changed = self._changed_statuses(desired, observed, plan, failure=None)
        if changed or plan != resting.plan:
            return None
        self._resting[namespace, name] = resting
        return resting.result

    async def release_orphaned_pool(self, namespace: str, name: str) -> None:
        """Release a pool if it is deleted and its cluster no longer exists. Raises KubeError."""
        live = await self._kube.get("StoragePool", namespace, name)
        if live is None:
            return
        pool = ObjectMeta.model_validate(live["metadata"])
        owner = pool.labels.get(CLUSTER_LABEL)
        cluster = None
        if owner:
            cluster = await self._kube.get("WaltzCluster", namespace, owner)
        for step in planning.plan_orphaned_pool(pool, cluster_exists=cluster is not None):
            await perform_on_pool(self._kube, pool, step)

    async def _report_failure(self, live: LiveObject, reason: str, message: str) -> None:
        """Write a failed reconcile into the status, and record it as an event.

        The resource may be invalid, so only its metadata and its conditions are decoded.
        """
        metadata = ObjectMeta.model_validate(live["metadata"])
        self._recorder.record_failed_reconcile(metadata, reason, message)
        old = live.get("status") or {}
        try:
            conditions = ClusterStatus.model_validate(
                {"conditions": old.get("conditions") or ()}
            ).conditions
        except ValidationError:
            conditions = ()
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = failed_status(conditions, metadata.generation, reason, message, now).to_json()
        change = {part: status[part] for part in ("conditions", "message")}
        if any(old.get(part) != value for part, value in change.items()):
            await write_status(self._kube, "WaltzCluster", metadata, change)

    async def _perform(
        self, desired: DesiredCluster, plan: ClusterPlan
    ) -> tuple[list[Step], str | None]:
        """Perform the steps in order, except those that an earlier failed step stops (`stops`).

        Returns the steps that succeeded, and why the first failed step failed (None if none did).
        """
        executor = Executor(desired, self._kube, self._environment)
        succeeded: list[Step] = []
        try:
            failure = await self._perform_each(desired, executor, plan, succeeded)
        finally:
            # These steps were performed even if an unexpected exception followed. They are recorded
            # before the failure, because a recorded success removes the last recorded failure.
            self._recorder.record_steps(desired.cluster, succeeded, plan.change)
        if failure is not None:
            self._recorder.record_failed_step(desired.cluster, failure)
        return succeeded, failure

    async def _perform_each(
        self,
        desired: DesiredCluster,
        executor: Executor,
        plan: ClusterPlan,
        succeeded: list[Step],
    ) -> str | None:
        """Perform the steps as `_perform` does, and append those that succeed to ``succeeded``.

        Returns why the first failed step failed, None if none failed.
        """
        failed_steps: list[Step] = []
        first_reason: str | None = None
        for step in plan.steps:
            if any(stops(failed_step, step) for failed_step in failed_steps):
                continue
            try:
                await executor.perform(step)
            except StepFailed as failed:
                log.warning(
                    "cluster %s/%s: step failed, retrying: %s",
                    desired.namespace,
                    desired.name,
                    failed,
                )
                failed_steps.append(step)
                first_reason = first_reason or str(failed)
                continue
            log.info("cluster %s/%s: step done: %s", desired.namespace, desired.name, step)
            succeeded.append(step)
        return first_reason

    async def _write_statuses(
        self,
        desired: DesiredCluster,
        observed: ObservedCluster,
        plan: ClusterPlan,
        failure: str | None,
    ) -> tuple[bool, list[bool]]:
        """Write those statuses of the cluster and its pools that have changed.

        Returns whether the cluster is Ready, and for each write whether it succeeded.
        """
        ready, changed = self._changed_statuses(desired, observed, plan, failure)
        return ready, [
            await write_status(self._kube, type(resource).__name__, resource.metadata, status)
            for resource, status in changed
        ]

    def _changed_statuses(
        self,
        desired: DesiredCluster,
        observed: ObservedCluster,
        plan: ClusterPlan,
        failure: str | None,
    ) -> tuple[bool, list[tuple[WaltzCluster | StoragePool, dict[str, Any]]]]:
        """Return whether the cluster is Ready, and a merge patch for each status that differs."""
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = cluster_status(desired, observed, plan, now, failure)
        # The release of a pool removes its status; a new one would name this cluster for ever.
        released = {step.pool for step in plan.steps if isinstance(step, ReleasePool)}
        statuses: list[tuple[WaltzCluster | StoragePool, dict[str, Any]]] = [
            (pool, pool_status(desired, observed, pool, now).to_json())
            for pool in desired.own_pools
            if pool.metadata.name not in released
        ]
        # The cluster's status is written last: when a user sees that the cluster is Healthy, the
        # statuses of its pools already say Ready.
        statuses.append((desired.cluster, status.to_json()))
        ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions)
        changed: list[tuple[WaltzCluster | StoragePool, dict[str, Any]]] = []
        for resource, new in statuses:
            old = resource.status.to_json()
            if new != old:
                # A merge patch keeps the fields that it leaves out. So fields that only the old
                # status has are None in the patch, which removes them.
                changed.append((resource, dict.fromkeys(old) | new))
        return ready, changed


def _identify_state(observed: ObservedCluster, plan: ClusterPlan, failure: str | None) -> int:
    """Return a hash that changes when the plan, its failure or an object changes.

    ZooKeeper, servers and storages are part of the hash only by the plan that follows from them.
    Their own state contains positions in the log, which change with every append.
    """
    versions = frozenset(
        (key, live["metadata"].get("resourceVersion")) for key, live in observed.objects.items()
    )
    steps = tuple(map(str, plan.steps))
    changes = (plan.change, plan.rotation)
    return hash((steps, plan.waits, plan.problems, changes, failure, versions))
