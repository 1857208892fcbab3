"""The operator's metrics: names, help texts, and where the values come from.

Reads counters of the controller and the event recorder; touches nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.shell.controller import Controller
from waltz_operator.shell.event_recorder import KubeEventRecorder
from waltz_operator.shell.http import ByLabel

HELP = {
    "waltz_operator_leads": "1 while this operator holds the Lease and reconciles clusters, "
    "otherwise 0",
    "waltz_operator_clusters": "number of WaltzClusters that this operator reconciles",
    "waltz_operator_cluster_ready": "1 if the WaltzCluster was Ready at its last reconcile, "
    "otherwise 0, also while it is paused; by label `namespace`, `waltz_cluster`",
    "waltz_operator_looks_total": "reconciles of clusters",
    "waltz_operator_failed_looks_total": "reconciles that failed because the API server returned "
    "an error or did not answer",
    "waltz_operator_look_seconds_total": "total duration of all reconciles",
    "waltz_operator_steps_total": "steps that succeeded",
    "waltz_operator_failed_steps_total": "steps that failed; the operator retries them",
}
"""Help texts by metric name. A name that ends in ``_total`` is a counter, any other a gauge."""


def collect(
    controller: Controller, recorder: KubeEventRecorder, *, leads: bool
) -> Mapping[str, float | ByLabel]:
    """Return the values by metric name; readiness has one value per cluster."""
    ready: dict[tuple[str, ...], float] = {
        cluster: float(is_ready) for cluster, is_ready in controller.ready.items()
    }
    return {
        "waltz_operator_leads": float(leads),
        "waltz_operator_clusters": controller.clusters,
        "waltz_operator_cluster_ready": ByLabel(("namespace", "waltz_cluster"), ready),
        "waltz_operator_looks_total": controller.metrics.reconciles,
        "waltz_operator_failed_looks_total": controller.metrics.failures,
        "waltz_operator_look_seconds_total": controller.metrics.seconds,
        "waltz_operator_steps_total": recorder.steps,
        "waltz_operator_failed_steps_total": recorder.failed_steps,
    }
