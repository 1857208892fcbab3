"""One look at one cluster: what is wanted, what is, the next steps, the status. Thin shell.

Touches the API server and what `Surroundings` does. Nothing is remembered from look to look.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from typing import Any, Protocol

from pydantic import ValidationError

from waltz_operator.core.desired import Desired
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.observed import Observed
from waltz_operator.core.planning import plan
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.status import cluster_status, pool_status
from waltz_operator.core.steps import LetGo, Plan, Step
from waltz_operator.shell.controller import Seen
from waltz_operator.shell.environment import Surroundings
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.kube_api import Conflict, Kube, KubeError
from waltz_operator.shell.observer import observe

log = logging.getLogger(__name__)

SOON_SECONDS = 1.0
"""When to look again while something is to be done or waited for."""

LATER_SECONDS = 15.0
"""When to look again when all is well: drift that no event tells of is found by then."""


class Diary(Protocol):
    """Tells people what has happened, as events of the cluster."""

    def did(self, cluster: WaltzCluster, step: Step) -> None:
        """A step was done."""

    def failed(self, cluster: WaltzCluster, reason: str) -> None:
        """A step could not be done; it will be tried again."""


def utc_now() -> datetime.datetime:
    """Return the time of day."""
    return datetime.datetime.now(datetime.UTC)


class Reconciler:
    """Brings clusters nearer to what is wanted of them, one look at a time."""

    def __init__(
        self,
        kube: Kube,
        surroundings: Surroundings,
        diary: Diary,
        *,
        operator_namespace: str,
        clock: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._kube = kube
        self._surroundings = surroundings
        self._diary = diary
        self._operator_namespace = operator_namespace
        self._clock = clock

    async def reconcile(self, namespace: str, name: str) -> Seen | None:
        """Look once, do what may be done; return what was seen, None if the cluster is gone.

        Raises KubeError if the API server cannot be asked.
        """
        found = await self._kube.get("WaltzCluster", namespace, name)
        if found is None:
            return None
        try:
            desired = await self._desired(found)
        except ValidationError as invalid:
            log.error("WaltzCluster %s/%s cannot be understood: %s", namespace, name, invalid)
            return Seen(LATER_SECONDS, ready=False)
        observed = await observe(desired, self._kube, self._surroundings, self._clock())
        decided = plan(desired, observed)
        gone = await self._perform(desired, decided)
        if gone:
            return None
        ready = await self._report(desired, observed, decided)
        return Seen(LATER_SECONDS if decided.done else SOON_SECONDS, ready)

    async def release_deserted(self, namespace: str, name: str) -> None:
        """Let a deleted pool vanish whose cluster is no more. Raises KubeError."""
        found = await self._kube.get("StoragePool", namespace, name)
        if found is None or not found["metadata"].get("deletionTimestamp"):
            return
        metadata = found["metadata"]
        owner = (metadata.get("labels") or {}).get(CLUSTER_LABEL)
        if owner is None or await self._kube.get("WaltzCluster", namespace, owner) is None:
            finalizers = [each for each in metadata.get("finalizers", ()) if each != FINALIZER]
            change = {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}
            await self._kube.patch("StoragePool", namespace, name, {"metadata": change})

    async def _desired(self, found: Any) -> Desired:
        cluster = WaltzCluster.model_validate(found)
        namespace = cluster.metadata.namespace
        pools = await asyncio.gather(
            *(self._kube.get("StoragePool", namespace, name) for name in cluster.spec.pools)
        )
        there = tuple(StoragePool.model_validate(pool) for pool in pools if pool is not None)
        return Desired(cluster, there, self._operator_namespace)

    async def _perform(self, desired: Desired, decided: Plan) -> bool:
        """Do the steps up to the first that fails; return whether the cluster is gone."""
        executor = Executor(desired, self._kube, self._surroundings)
        for step in decided.steps:
            try:
                await executor.perform(step)
            except StepFailed as failed:
                log.warning("%s/%s: %s", desired.namespace, desired.name, failed)
                self._diary.failed(desired.cluster, str(failed))
                return False
            log.info("%s/%s: %s", desired.namespace, desired.name, step)
            self._diary.did(desired.cluster, step)
            if isinstance(step, LetGo):
                return True
        return False

    async def _report(self, desired: Desired, observed: Observed, decided: Plan) -> bool:
        """Write what has changed of the status, and return whether the cluster is Ready.

        Who is in the way of writing writes another one.
        """
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = cluster_status(desired, observed, decided, now)
        await self._write_status(desired.cluster, status.to_json())
        for pool in desired.own_pools:
            await self._write_status(pool, pool_status(desired, observed, pool, now).to_json())
        return any(each.type == "Ready" and each.status == "True" for each in status.conditions)

    async def _write_status(
        self, resource: WaltzCluster | StoragePool, status: dict[str, Any]
    ) -> None:
        if status == resource.status.to_json():
            return
        metadata, kind = resource.metadata, type(resource).__name__
        try:
            await self._kube.patch(
                kind, metadata.namespace, metadata.name, {"status": status}, part="status"
            )
        except Conflict:
            return
        except KubeError as problem:
            log.warning("%s %s: its status is not written: %s", kind, metadata.name, problem)
