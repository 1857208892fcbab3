"""The request to rebalance a pool by bytes, its record, and the steps that write the record. Pure.

A user requests a rebalance by the annotation `REBALANCE_ANNOTATION` of the StoragePool; each new
value is one request. The operator records the chosen moves in another annotation before the first
of them. So an operator that continues after another one follows the same moves. The list of moves
does not change while it is followed. So no partition moves twice, however the sizes change under
load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from decimal import Decimal
from enum import StrEnum

from waltz_operator.core.balance import Balancing, PlannedMove
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import REBALANCE_ANNOTATION, REBALANCED_ANNOTATION
from waltz_operator.core.objects.manifest import amount
from waltz_operator.core.observed import LiveObject, ObservedCluster
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.volume_replacement import pool_pods


@dataclass(frozen=True, slots=True)
class Rebalance:
    """How far the requests to rebalance a pool are.

    ``answered`` is the last request that is complete, empty if there is none. ``request`` is the
    request whose ``moves`` are followed, empty if none are. ``storages`` is the number of storages
    for which the partitions are arranged by bytes: while the pool has this number of storages, its
    partitions are not spread by count. It is 0 if the partitions are spread by count.
    """

    answered: str = ""
    request: str = ""
    storages: int = 0
    moves: tuple[PlannedMove, ...] = ()

    def to_json(self) -> str:
        """Return the value of the annotation."""
        return json.dumps(
            {
                "answered": self.answered,
                "request": self.request,
                "storages": self.storages,
                "moves": [astuple(move) for move in self.moves],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Rebalance:
        """Return the record in an annotation. Raises ValueError."""
        try:
            fields = json.loads(text)
            moves = tuple(PlannedMove(*map(int, move)) for move in fields["moves"])
            return cls(
                str(fields["answered"]), str(fields["request"]), int(fields["storages"]), moves
            )
        except (KeyError, TypeError, OverflowError) as malformed:
            raise ValueError(str(malformed)) from malformed


class RebalanceEnd(StrEnum):
    """Why the operator no longer follows the moves of a request. The value is for users."""

    COMPLETE = "is complete"
    WITHDRAWN = "has stopped, because its annotation was changed or removed"
    RESCALED = (
        "no longer holds, because the number of storages has changed: the partitions are spread by "
        "count again"
    )


@dataclass(frozen=True, slots=True)
class BeginRebalance:
    """Record the moves that rebalance a pool by bytes, before the first of them.

    ``balancing`` says for users what the moves of ``record`` change. The step is a compare-and-set
    of the pool's version.
    """

    pool: str
    record: Rebalance
    balancing: Balancing

    def __str__(self) -> str:
        count = len(self.record.moves)
        return (
            f"StoragePool {self.pool}: the rebalance {self.record.request} begins, "
            f"{count} move{'' if count == 1 else 's'}; {self.balancing}"
        )


@dataclass(frozen=True, slots=True)
class EndRebalance:
    """Record that no further move of a rebalance follows.

    ``record`` is the record after the end, without moves. ``request`` names for users the rebalance
    that has ended. With the reason RESCALED this is the last complete one, and the text is empty if
    there is none. The step is a compare-and-set of the pool's version.
    """

    pool: str
    record: Rebalance
    request: str
    reason: RebalanceEnd

    def __str__(self) -> str:
        name = f" {self.request}" if self.request else ""
        return f"StoragePool {self.pool}: the rebalance{name} {self.reason}"


RebalanceStep = BeginRebalance | EndRebalance
"""A step that writes the record of a pool."""


def recorded_rebalance(pool: StoragePool) -> Rebalance:
    """Return the record in a pool's annotation; an empty record without the annotation.

    Raises ValueError if the annotation cannot be decoded.
    """
    text = pool.metadata.annotations.get(REBALANCED_ANNOTATION)
    return Rebalance() if text is None else Rebalance.from_json(text)


def answered_request(pool: StoragePool) -> str:
    """Return the last complete request of a pool; empty without one or with a malformed record."""
    try:
        return recorded_rebalance(pool).answered
    except ValueError:
        return ""


def open_request(pool: StoragePool, record: Rebalance) -> str:
    """Return the present request of a pool if it is not answered yet, otherwise an empty text."""
    request = pool.metadata.annotations.get(REBALANCE_ANNOTATION, "")
    return "" if request == record.answered else request


def volume_capacities(desired: DesiredCluster, observed: ObservedCluster) -> Mapping[str, int]:
    """Return the size in bytes of the data volume of each storage, as far as it is known.

    The size is the capacity that Kubernetes reports of a volume. Without a volume it is the size
    that the claim requests, and without a claim the size that the pool specifies. A storage for
    which this is not an amount of at least one byte is left out.
    """
    sizes = {}
    for pool_pod in pool_pods(desired, observed):
        claim = pool_pod.claims.get(f"data-{pool_pod.pod}", {})
        size = amount(_claimed_size(claim) or pool_pod.pool.spec.volumes.data.size)
        if isinstance(size, Decimal) and size >= 1:
            sizes[pool_pod.storage] = int(size)
    return sizes


def _claimed_size(claim: LiveObject) -> str:
    """Return the capacity of a claim's volume, else the requested size, else an empty text."""
    capacity = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    resources = (claim.get("spec") or {}).get("resources") or {}
    return str(capacity or (resources.get("requests") or {}).get("storage") or "")
