"""Show what the operator would do, without doing it: ``preview(desired, observed)``. Pure.

The planner of `core.planning` is called again and again. After each call, the plan's steps are
applied to the observed state instead of the cluster. `kubernetes` simulates the changes of objects,
`replicas` those of storages and partitions, `certificates` those of secrets. `simulation` combines
the three. `forecast` runs the planner until there are no more steps, `duration` estimates the time,
and `report` writes the result for a person.

Invariants:

* The planner decides every step: this package has no rule of its own about what comes next.
* A preview changes the same assignments, pools and objects as the operator would, in the same order
  (tests/unit/operator/test_operator_preview_properties.py compares them with the simulated world of
  the planner's tests).
* Nothing that is broken becomes healthy by itself: a storage that does not answer at first never
  answers, and a pod that does not start never starts. The preview says for what the operator waits.
  Only what is incomplete is completed while the plan waits for it, such as a pod that does not
  exist yet, or a replica that lags (`simulation.settled`).
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
