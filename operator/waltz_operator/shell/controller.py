"""Decide when a cluster is reconciled: soon after every event, and periodically.

An *event* is the news that a resource or an object of a cluster has changed
(`waltz_operator.shell.handlers`). It only enqueues the cluster's name. Each reconcile reads the
whole state, so a lost event delays a repair and has no other effect. The first event after a quiet
time causes a reconcile at once. Further events cause at most one reconcile per
`SHORTEST_PERIOD_SECONDS`. Each cluster has one task for its reconciles: two reconciles of one
cluster never overlap, and an error of one cluster never stops the reconciles of another one.
Touches the event loop's clock and tasks, not the network.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from waltz.net.core.backoff import Backoff
from waltz.runtime.process import fail_stop_on_error
from waltz_operator.shell.kube_api import KubeError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of one reconcile; ``requeue_seconds`` is the pause before the next one.

    ``ready`` is whether the cluster is Ready. ``state`` is a hash of the plan and of the versions
    of the observed objects. While consecutive reconciles return the same hash, the pause doubles
    up to `LONGEST_PAUSE_SECONDS`. If ``state`` is None, the pause does not grow.
    """

    requeue_seconds: float
    ready: bool
    state: int | None = None


Reconcile = Callable[[str, str], Awaitable[ReconcileResult | None]]
"""A function that reconciles the cluster with this namespace and name.

The function returns None if the cluster no longer exists.
"""

Check = Callable[[str, str], Awaitable[ReconcileResult | None]]
"""A function that checks whether the cluster with this namespace and name still needs nothing.

The check is cheaper than a reconcile. If the cluster needs nothing, the function returns the result
of its last reconcile. If the cluster must be reconciled, the function returns None.
"""


class PersistentApiError(KubeError):
    """Errors of the API server have ended every reconcile of a cluster for a while.

    `Reconciler.reconcile` raises it. Another KubeError leaves the last known readiness of the
    cluster as it is. After this error the cluster counts as not Ready in the metrics, because its
    state has been unknown for too long.
    """


LONGEST_PAUSE_SECONDS = 15.0
"""The bound of a pause that doubles while `ReconcileResult.state` stays the same.

A `ReconcileResult.requeue_seconds` that is longer is kept, and does not grow.
"""

SHORTEST_PERIOD_SECONDS = 1.0
"""The least time from the beginning of one reconcile of a cluster to that of the next one.

The writes of a reconcile cause events. Without this bound, a cluster whose state changes all the
time, as under load, would be reconciled without a pause.
"""

_BACKOFF = Backoff(1.0, 30.0)
"""The pauses in seconds after reconciles of a cluster that raised an exception."""


@dataclass(slots=True)
class ReconcileMetrics:
    """Counts of the reconciles of all clusters, for metrics.

    A `Check` counts as a reconcile.
    """

    reconciles: int = 0
    failures: int = 0
    """The number of reconciles that raised an exception."""
    seconds: float = 0.0
    """The duration of all reconciles together."""


@dataclass(slots=True)
class _Worker:
    """One cluster's task, its wake-up event and the result of its last reconcile."""

    enqueued: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the cluster must be reconciled soon."""
    task: asyncio.Task[None] | None = None
    progress_at: float | None = None
    """The time of the last progress of the running reconcile, or of its beginning.

    None between two reconciles."""

    result: ReconcileResult | None = None
    num_unchanged: int = 0
    """How many times in a row a reconcile has returned the same state as the one before it."""

    def keep_result(self, result: ReconcileResult | None) -> float | None:
        """Keep the result of a reconcile; return the seconds until the next reconcile.

        ``result`` is None if the cluster no longer exists. Then None is returned: no reconcile
        follows.
        """
        earlier, self.result = self.result, result
        if result is None:
            return None
        earlier_state = None if earlier is None else earlier.state
        is_unchanged = result.state is not None and result.state == earlier_state
        self.num_unchanged = self.num_unchanged + 1 if is_unchanged else 0
        longest = max(result.requeue_seconds, LONGEST_PAUSE_SECONDS)
        return Backoff(result.requeue_seconds, longest).delay(self.num_unchanged)


class Controller:
    """Reconciles every enqueued cluster until it no longer exists.

    Without an event, ``check`` is called first, and ``reconcile`` only if ``check`` returns None.
    """

    def __init__(self, reconcile: Reconcile, check: Check | None = None) -> None:
        self._reconcile = reconcile
        self._check = check
        self._workers: dict[tuple[str, str], _Worker] = {}
        self.metrics = ReconcileMetrics()

    @property
    def num_clusters(self) -> int:
        """The number of clusters that this controller reconciles."""
        return len(self._workers)

    @property
    def ready(self) -> dict[tuple[str, str], bool]:
        """Whether each cluster was Ready at its last reconcile, by namespace and name.

        A cluster is absent until it has a result. A reconcile that ended with an error of the API
        server does not count. But if these errors persist (`PersistentApiError`), the cluster is
        not Ready.
        """
        return {
            cluster: worker.result.ready
            for cluster, worker in self._workers.items()
            if worker.result is not None
        }

    def stuck(self, seconds: float) -> tuple[str, str] | None:
        """Return a cluster whose reconcile made no progress for more than ``seconds``, or None."""
        now = asyncio.get_running_loop().time()
        for cluster, worker in self._workers.items():
            if worker.progress_at is not None and now - worker.progress_at > seconds:
                return cluster
        return None

    def note_progress(self, namespace: str, name: str) -> None:
        """Note that a long step of a cluster's running reconcile makes progress (see `stuck`)."""
        worker = self._workers.get((namespace, name))
        if worker is not None and worker.progress_at is not None:
            worker.progress_at = asyncio.get_running_loop().time()

    def enqueue(self, namespace: str, name: str) -> None:
        """Reconcile a cluster soon, because its state may have changed."""
        cluster = (namespace, name)
        worker = self._workers.get(cluster)
        if worker is None:
            worker = self._workers[cluster] = _Worker()
            worker.task = fail_stop_on_error(asyncio.ensure_future(self._run(cluster, worker)))
        worker.enqueued.set()

    async def close(self) -> None:
        """Stop all reconciles, and cancel those that are running."""
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, cluster: tuple[str, str], worker: _Worker) -> None:
        """Reconcile one cluster again and again, until it no longer exists."""
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            # `enqueued` is cleared before the state is read, so that an event during this reconcile
            # causes another reconcile.
            has_event = worker.enqueued.is_set()
            worker.enqueued.clear()
            started = worker.progress_at = clock()
            try:
                result = None
                if self._check is not None and not has_event:
                    result = await self._check(*cluster)
                if result is None:
                    result = await self._reconcile(*cluster)
                requeue_seconds, failures = worker.keep_result(result), 0
            except Exception as problem:
                # Even an unexpected exception ends only this reconcile. If it ended the process,
                # the resource of one cluster could stop the operator for all clusters.
                requeue_seconds = _BACKOFF.delay(failures)
                _log_failure(cluster, problem, requeue_seconds)
                if isinstance(problem, PersistentApiError) or not isinstance(problem, KubeError):
                    # The metrics must not show the result of an earlier reconcile forever. But a
                    # short error of the API server says nothing about the cluster: the last result
                    # stays.
                    worker.result = ReconcileResult(requeue_seconds, ready=False)
                self.metrics.failures += 1
                failures += 1
            worker.progress_at = None
            self.metrics.reconciles += 1
            self.metrics.seconds += clock() - started
            if requeue_seconds is not None:
                await self._wait(worker, requeue_seconds)
                # After a quiet time the shortest period is over, so an event is handled at once.
                await asyncio.sleep(max(0.0, started + SHORTEST_PERIOD_SECONDS - clock()))
            elif not worker.enqueued.is_set():
                # The cluster no longer exists, and no event has reported a new one of its name.
                break
        del self._workers[cluster]

    @staticmethod
    async def _wait(worker: _Worker, seconds: float) -> None:
        """Wait for ``seconds``, or until the cluster is enqueued."""
        try:
            async with asyncio.timeout(seconds):
                await worker.enqueued.wait()
        except TimeoutError:
            return


def _log_failure(cluster: tuple[str, str], problem: Exception, requeue_seconds: float) -> None:
    if isinstance(problem, KubeError):
        text = "cluster %s/%s: API server error, retrying in %g s: %s"
        log.warning(text, *cluster, requeue_seconds, problem)
    else:
        text = "cluster %s/%s: reconcile failed unexpectedly, retrying in %g s"
        log.error(text, *cluster, requeue_seconds, exc_info=problem)
