"""The change of a cluster's shape that a plan makes, as users see it. Pure.

The *shape* of a cluster is which pools and storages it has, and which partitions each storage has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.replicas import quorum


class ShapeChangeKind(StrEnum):
    """The kinds of changes of a cluster's shape. The value is the reason of a condition."""

    ADDING_POOL = "AddingPool"
    REMOVING_POOL = "RemovingPool"
    MOVING_PARTITIONS = "MovingPartitions"
    REBALANCING = "Rebalancing"
    RETIRING_FOREIGN_GROUP = "RetiringForeignGroup"


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """A change of the cluster's pools, groups or storages that is not complete.

    ``pool`` is the name of the pool, or the id of the *foreign group*, that changes. A foreign
    group is a group of an adopted cluster whose storages belong to no pool
    (`planning.shape_adoption`). ``progress`` is its present state for users, such as ``pool d:
    partition 17 of 64``. ``copies`` is the number of copies that `quorum_sentence` is about:

    * While a pool is added: the number of copies that one partition will have after the addition.
      It is the partition that gets its new copy now or next.
    * While a pool or a foreign group is removed: the smallest number of copies that a partition
      keeps.
    * While partitions move: the largest number of copies that a partition has now. A partition that
      moves has one copy more while it is on both the source and the destination.
    """

    kind: ShapeChangeKind
    pool: str
    progress: str
    copies: int

    @property
    def quorum_sentence(self) -> str:
        """How many copies of a partition are a quorum, and how many may fail."""
        needed = quorum(self.copies)
        spare = self.copies - needed
        return f"of {self.copies} copies, {needed} are a quorum and {spare} may fail"
