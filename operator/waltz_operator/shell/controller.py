"""Decide when a cluster is reconciled: soon after every event, and periodically.

An event only enqueues the cluster's name. Each reconcile reads the whole state, so a lost event
delays a repair and has no other effect. One task per cluster runs its reconciles, so two reconciles
of one cluster never overlap. Touches the event loop's clock and tasks, not the network.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from waltz.net.core.backoff import Backoff
from waltz.runtime.process import watched
from waltz_operator.shell.kube_api import KubeError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of one reconcile; ``requeue_seconds`` is the pause before the next one."""

    requeue_seconds: float
    ready: bool


Reconcile = Callable[[str, str], Awaitable[ReconcileResult | None]]
"""A function that reconciles the cluster with this namespace and name.

The function returns None if the cluster no longer exists.
"""

_BACKOFF = Backoff(1.0, 30.0)


@dataclass(slots=True)
class ReconcileMetrics:
    """The number of reconciles and of failed reconciles, and the duration of all of them."""

    reconciles: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Worker:
    """One cluster's task, its wake-up event and the result of its last reconcile."""

    enqueued: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    result: ReconcileResult | None = None


class Controller:
    """Reconciles every enqueued cluster until it no longer exists."""

    def __init__(self, reconcile: Reconcile) -> None:
        self._reconcile = reconcile
        self._workers: dict[tuple[str, str], _Worker] = {}
        self.metrics = ReconcileMetrics()

    @property
    def clusters(self) -> int:
        """The number of clusters that this controller reconciles."""
        return len(self._workers)

    @property
    def ready(self) -> dict[tuple[str, str], bool]:
        """Whether each cluster was Ready at its last reconcile, by namespace and name."""
        return {
            cluster: worker.result.ready
            for cluster, worker in self._workers.items()
            if worker.result is not None
        }

    def enqueue(self, namespace: str, name: str) -> None:
        """Reconcile a cluster soon, because its state may have changed."""
        cluster = (namespace, name)
        worker = self._workers.get(cluster)
        if worker is None:
            worker = self._workers[cluster] = _Worker()
            worker.task = watched(asyncio.ensure_future(self._run(cluster, worker)))
        worker.enqueued.set()

    async def close(self) -> None:
        """Stop all reconciles, and cancel those that are running."""
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, cluster: tuple[str, str], worker: _Worker) -> None:
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            # Cleared before the state is read, so that an event during this reconcile causes
            # another reconcile.
            worker.enqueued.clear()
            started = clock()
            try:
                worker.result, failures = await self._reconcile(*cluster), 0
                requeue = None if worker.result is None else worker.result.requeue_seconds
            except KubeError as problem:
                requeue = _BACKOFF.delay(failures)
                log.warning(
                    "cluster %s/%s: API server error, retrying in %g s: %s",
                    *cluster,
                    requeue,
                    problem,
                )
                self.metrics.failures += 1
                failures += 1
            self.metrics.reconciles += 1
            self.metrics.seconds += clock() - started
            if requeue is not None:
                await self._wait(worker, requeue)
            elif not worker.enqueued.is_set():
                break
        del self._workers[cluster]

    @staticmethod
    async def _wait(worker: _Worker, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await worker.enqueued.wait()
        except TimeoutError:
            return
