"""Keep what is known of a cluster at rest, so that checks need no objects from the API server.

A cluster is *at rest* while its plan is done (`ClusterPlan.done`), or while the cluster is paused.
`Reconciler.check` compares its new plan with the one that is kept here. The observed objects are
kept compressed: as dictionaries, the objects of 200 clusters would need more than the operator's
memory limit. Touches nothing.
"""

from __future__ import annotations

import datetime
import json
import zlib
from dataclasses import dataclass

from waltz_operator.core.authority import ObservedAuthority
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import LiveObject, ObservedCluster, ZooKeeperUnreachable
from waltz_operator.core.steps import ClusterPlan
from waltz_operator.shell.controller import ReconcileResult

_LONGEST_REST = datetime.timedelta(minutes=10)
"""The time after which everything is read again, to find changes that no watch has reported."""


@dataclass(frozen=True, slots=True)
class RestingCluster:
    """A cluster as its last reconcile read it at the time ``since``.

    ``plan`` and ``result`` are those of that reconcile. ``packed_objects`` are the observed objects
    as compressed JSON. ``certificate_days``, ``authority`` and ``authority_problem`` are those of
    `ObservedCluster`.
    """

    desired: DesiredCluster
    plan: ClusterPlan
    result: ReconcileResult
    since: datetime.datetime
    certificate_days: float | None
    authority: ObservedAuthority | None
    authority_problem: str
    packed_objects: bytes

    def is_outdated(self, now: datetime.datetime) -> bool:
        """Whether the cluster must be read again: it is too old, or the clock was set back."""
        age = now - self.since
        return age < datetime.timedelta() or age >= _LONGEST_REST

    def observed(self) -> ObservedCluster:
        """Return the kept part of the observation; ZooKeeper is not part of it.

        The result says that ZooKeeper is unreachable, until the caller observes it. The fields that
        are not kept have their defaults. They concern a deletion, lost or growing volumes, and pods
        of ZooKeeper that are replaced: the plan of a cluster at rest does not depend on them.
        """
        entries = json.loads(zlib.decompress(self.packed_objects))
        objects: dict[ObjectKey, LiveObject] = {
            ObjectKey(kind, name): live for kind, name, live in entries
        }
        return ObservedCluster(
            objects,
            ZooKeeperUnreachable("not observed"),
            self.certificate_days,
            authority=self.authority,
            authority_problem=self.authority_problem,
        )


def pack(
    desired: DesiredCluster,
    plan: ClusterPlan,
    result: ReconcileResult,
    observed: ObservedCluster,
    now: datetime.datetime,
) -> RestingCluster:
    """Return what is kept of a cluster that was observed at the time ``now``."""
    entries = [
        (key.kind, key.name, _without_managers(live)) for key, live in observed.objects.items()
    ]
    packed = zlib.compress(json.dumps(entries).encode())
    return RestingCluster(
        desired,
        plan,
        result,
        now,
        observed.certificate_days,
        observed.authority,
        observed.authority_problem,
        packed,
    )


def _without_managers(live: LiveObject) -> LiveObject:
    """Return an object without its managed fields, which are long and which no plan depends on."""
    metadata = {name: each for name, each in live["metadata"].items() if name != "managedFields"}
    return {**live, "metadata": metadata}
