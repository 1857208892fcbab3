"""What the operator measures, under which names, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.shell.controller import Lookout
from waltz_operator.shell.event_recorder import EventDiary
from waltz_operator.shell.http import ByLabel

MEANINGS = {
    "waltz_operator_leads": "1 while it has the Lease, and works; 0 while it waits",
    "waltz_operator_clusters": "how many WaltzClusters it looks after",
    "waltz_operator_cluster_ready": "1 if the WaltzCluster was Ready when last looked at, "
    "otherwise 0, also while it is paused; by label `namespace`, `waltz_cluster`",
    "waltz_operator_looks_total": "looks at clusters",
    "waltz_operator_failed_looks_total": "looks that the API server gave no answers for",
    "waltz_operator_look_seconds_total": "how long all looks took",
    "waltz_operator_steps_total": "steps that were done",
    "waltz_operator_failed_steps_total": "steps that failed; they are tried again",
}
"""What ends in ``_total`` is a counter, all else a gauge."""


def measure(lookout: Lookout, diary: EventDiary, *, leads: bool) -> Mapping[str, float | ByLabel]:
    """Return the values by their names; of readiness there is one by cluster."""
    ready: dict[tuple[str, ...], float] = {
        which: float(is_ready) for which, is_ready in lookout.ready.items()
    }
    return {
        "waltz_operator_leads": float(leads),
        "waltz_operator_clusters": lookout.clusters,
        "waltz_operator_cluster_ready": ByLabel(("namespace", "waltz_cluster"), ready),
        "waltz_operator_looks_total": lookout.measures.looks,
        "waltz_operator_failed_looks_total": lookout.measures.failures,
        "waltz_operator_look_seconds_total": lookout.measures.seconds,
        "waltz_operator_steps_total": diary.steps,
        "waltz_operator_failed_steps_total": diary.failed_steps,
    }
