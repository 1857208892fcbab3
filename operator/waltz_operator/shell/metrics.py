"""Define the operator's metrics: their names, help texts and values.

Reads counters of the controller and the event recorder. Touches nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from waltz_operator.shell.controller import Controller
from waltz_operator.shell.event_recorder import KubeEventRecorder

_READY = "waltz_operator_cluster_ready"

HELP = {
    "waltz_operator_is_leader": "1 while this operator holds the Lease and reconciles clusters, "
    "otherwise 0",
    "waltz_operator_clusters": "number of WaltzClusters that this operator reconciles",
    _READY: "1 if the WaltzCluster was Ready at its last reconcile, "
    "otherwise 0; a paused WaltzCluster is not Ready; by label `namespace`, `waltz_cluster`",
    "waltz_operator_reconciles_total": "reconciles of clusters, including the cheap checks of "
    "clusters that need nothing",
    "waltz_operator_failed_reconciles_total": "reconciles that failed because of an API server "
    "error or unexpectedly; the operator retries them",
    "waltz_operator_reconcile_seconds_total": "total duration of all reconciles and checks",
    "waltz_operator_steps_total": "changes that the operator made to clusters, each of them a step "
    "of a plan",
    "waltz_operator_failed_steps_total": "steps that failed; the operator retries them",
}
"""Help texts by metric name. A name that ends in ``_total`` is a counter, any other a gauge."""


class OperatorMetrics(Collector):
    """Reads the counters of the operator's parts when Prometheus scrapes them."""

    def __init__(
        self, controller: Controller, recorder: KubeEventRecorder, is_leader: Callable[[], bool]
    ) -> None:
        self._controller = controller
        self._recorder = recorder
        self._is_leader = is_leader

    def collect(self) -> list[Metric]:
        """Return all metrics with their current values. The metric `_READY` has one per cluster."""
        reconciles = self._controller.metrics
        values = {
            "waltz_operator_is_leader": self._is_leader(),
            "waltz_operator_clusters": self._controller.num_clusters,
            "waltz_operator_reconciles_total": reconciles.reconciles,
            "waltz_operator_failed_reconciles_total": reconciles.failures,
            "waltz_operator_reconcile_seconds_total": reconciles.seconds,
            "waltz_operator_steps_total": self._recorder.steps,
            "waltz_operator_failed_steps_total": self._recorder.failed_steps,
        }
        collected: list[Metric] = []
        for name, meaning in HELP.items():
            if name == _READY:
                ready = GaugeMetricFamily(name, meaning, labels=("namespace", "waltz_cluster"))
                for cluster, is_ready in self._controller.ready.items():
                    ready.add_metric(cluster, is_ready)
                collected.append(ready)
            elif name.endswith("_total"):
                collected.append(CounterMetricFamily(name, meaning, values[name]))
            else:
                collected.append(GaugeMetricFamily(name, meaning, values[name]))
        return collected
