"""Extend the simulated world by sizes of partitions and volumes, and requests to rebalance pools.

A replica of a session reports the size of its partition, another one less. The record of a pool is
written by compare-and-set, so a step of an outdated plan is refused if the pool has changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

from typing_extensions import override

from tests.support.operator_world import Znodes
from tests.support.shape_world import ShapeWorld, StepRefused
from waltz.admin.core.replicas import HeldPartition, ReplicaObservation
from waltz_operator.core import names
from waltz_operator.core.desired import addresses_of
from waltz_operator.core.names import REBALANCE_ANNOTATION, REBALANCED_ANNOTATION
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.rebalance import (
    BeginRebalance,
    EndRebalance,
    Rebalance,
    recorded_rebalance,
    volume_capacities,
)
from waltz_operator.core.steps import Step


class RebalanceWorld(ShapeWorld):
    """A world whose partitions have ``sizes`` in bytes, by number; others are empty."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.sizes: Counter[int] = Counter()
        self.versions: Counter[str] = Counter()
        """The version of each pool. It changes with the annotations."""

        self.planned_versions: Counter[str] = Counter()
        """The versions from which the plan was made that is performed late."""

        self.begins: list[BeginRebalance] = []
        """The steps that have begun a rebalance."""

        self.ends: list[EndRebalance] = []
        """The steps that have ended a rebalance."""

    def annotate(self, pool: str, key: str, value: str | None) -> None:
        """Set an annotation of a pool; None removes it."""
        annotations = self.pools[pool]["metadata"].setdefault("annotations", {})
        annotations.pop(key, None)
        if value is not None:
            annotations[key] = value
        self.versions[pool] += 1

    def request(self, pool: str, value: str | None) -> None:
        """Request to rebalance a pool; None withdraws the request."""
        self.annotate(pool, REBALANCE_ANNOTATION, value)

    def record(self, pool: str) -> Rebalance:
        """Return the record of a pool."""
        found = next(p for p in self.desired().pools if p.metadata.name == pool)
        return recorded_rebalance(found)

    def enlarge(self, pool: str, ordinal: int, size: str) -> None:
        """Give one storage a volume that is larger than its pool specifies."""
        name = f"data-{names.storage_set(pool)}-{ordinal}"
        self.objects[ObjectKey("PersistentVolumeClaim", name)] = {
            "metadata": {"name": name, "uid": name},
            "spec": {"resources": {"requests": {"storage": size}}},
            "status": {"phase": "Bound", "capacity": {"storage": size}},
        }

    def shares(self, pool: str) -> list[Fraction]:
        """Return the used share of each volume of a pool, as far as its pods are registered."""
        assert isinstance(self.znodes, Znodes)
        desired = self.desired()
        capacities = volume_capacities(desired, self.observed())
        assigned = self.znodes.maps.assignments.partitions
        (found,) = (p for p in desired.pools if p.metadata.name == pool)
        return [
            Fraction(sum(self.sizes[p] for p in assigned[storage]), capacities[storage])
            for storage in addresses_of(found)
            if storage in assigned
        ]

    @override
    def replicas(self) -> ReplicaObservation:
        observed = super().replicas()
        storages = {
            storage: replace(
                report,
                held={p: self._sized(storage, held) for p, held in report.held.items()},
            )
            for storage, report in observed.storages.items()
        }
        return replace(observed, storages=storages)

    def _sized(self, storage: str, held: HeldPartition) -> HeldPartition:
        size = self.sizes[held.partition]
        if storage not in self.view(held.partition).session_replicas:
            size //= 2
        return replace(held, size_bytes=size)

    @override
    def perform(self, step: Step) -> None:
        match step:
            case BeginRebalance(pool, record) | EndRebalance(pool, record):
                if self.acts_late and self.versions[pool] != self.planned_versions[pool]:
                    raise StepRefused(f"{pool} has another version")
                self.annotate(pool, REBALANCED_ANNOTATION, record.to_json())
                if isinstance(step, BeginRebalance):
                    self.begins.append(step)
                else:
                    self.ends.append(step)
            case _:
                super().perform(step)
