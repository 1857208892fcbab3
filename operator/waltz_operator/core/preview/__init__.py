"""Show what the operator would do, without doing it: ``preview(desired, observed)``. Pure.

The planner of `core.planning` is called again and again. After each call, the plan's steps are
applied to the observed state instead of the cluster: `kubernetes` changes objects, `replicas`
changes storages and partitions, `certificates` secrets, `simulation` combines them. `forecast` runs
the planner until it has nothing left to do, `duration` estimates the time, and `report` writes the
result for a person.

Invariants:

* The planner decides every step: this package has no rule of its own about what comes next.
* A preview has the assignments, the pools and the objects that the operator would change, in its
  order (tests/unit/operator/test_operator_preview_properties.py compares them with the simulated
  world of the planner's tests).
* Nothing that is broken becomes healthy by itself: a storage that does not answer, and a pod that
  does not start, stay so until the end. The preview says for what the operator waits.
"""

from waltz_operator.core.preview.duration import MEGABYTES_PER_SECOND
from waltz_operator.core.preview.forecast import Ending, Preview, ReplicaGain, ReplicaLoss, preview
from waltz_operator.core.preview.report import report

__all__ = [
    "MEGABYTES_PER_SECOND",
    "Ending",
    "Preview",
    "ReplicaGain",
    "ReplicaLoss",
    "preview",
    "report",
]
