"""Choose the moves that bring the used shares of a pool's volumes near their average. Pure.

The *used share* of a storage is the size of its partitions, divided by the size of its volume. The
*average* is the size of all partitions of the pool, divided by the size of all of its volumes. The
pool is balanced when each used share differs from the average by at most a tenth of the average
(`TOLERANCE`).

Each move goes from the storage with the highest used share to the one with the lowest, if one of
the two is beyond the tolerance and a partition fits. Otherwise the next pair of storages is tried.
Of the partitions that fit, the one moves that brings the two used shares closest together, so that
few moves are needed. (The smallest possible number of moves is not computed: this is the problem of
partitioning numbers, whose exact solution takes exponential time.)

The *ideal size* is that of a partition whose move would make the two used shares equal. A partition
fits if its move meets two rules:

* After the move, the destination is below the former used share of the source, and the source is
  above the former used share of the destination. Each such move is a strict improvement: the
  highest used share does not rise, the lowest does not fall, and the sum over all storages of
  (used bytes)² / (bytes of the volume) decreases.
* If the partition is above the ideal size, the move at least halves the difference of the two used
  shares. Otherwise many bytes would move for little.

Every partition moves at most once. So the choice ends, and no move undoes another one
(tests/unit/operator/test_operator_balance.py). Integers and fractions are compared, so the result
does not depend on rounding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction

TOLERANCE = Fraction(1, 10)
"""How far a used share may be from the average of its pool, as a part of the average."""

MAX_MOVES = 1000
"""The number of moves of one request at most; another request continues.

The moves are recorded in an annotation (`core.rebalance`), and Kubernetes limits the size of
annotations.
"""


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """The volume of one storage, by the ``ordinal`` of the storage in its pool.

    ``capacity`` is the size of the volume in bytes. ``sizes`` has the size in bytes of each
    partition on it.
    """

    ordinal: int
    capacity: int
    sizes: Mapping[int, int]

    def __post_init__(self) -> None:
        assert self.capacity > 0, f"the volume {self.ordinal} has no size"

    @property
    def used(self) -> int:
        """The size of all partitions in bytes."""
        return sum(self.sizes.values())


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The move of a partition of ``size`` bytes; ``source`` and ``destination`` are ordinals."""

    partition: int
    source: int
    destination: int
    size: int


@dataclass(frozen=True, slots=True)
class Balancing:
    """Moves in their order, with the used shares of all storages before and after them."""

    moves: tuple[PlannedMove, ...]
    before: tuple[Fraction, ...]
    after: tuple[Fraction, ...]

    def __str__(self) -> str:
        return f"used shares of the volumes: {_range(self.before)}, afterwards {_range(self.after)}"


def _range(shares: Sequence[Fraction]) -> str:
    """Return the lowest and the highest share, such as ``20.5 % to 71.0 %``."""
    return f"{100 * float(min(shares)):.1f} % to {100 * float(max(shares)):.1f} %"


def choose_moves(volumes: Sequence[VolumeUse], movable: Set[int]) -> Balancing:
    """Return the moves that balance ``volumes``, each a strict improvement.

    Only the partitions ``movable`` move. ``volumes`` must not be empty.
    """
    levels = [_Level.of(volume, movable) for volume in volumes]
    before = tuple(level.share for level in levels)
    moves: list[PlannedMove] = []
    while len(moves) < MAX_MOVES and (move := _perform_best_move(levels)) is not None:
        moves.append(move)
    return Balancing(tuple(moves), before, after=tuple(level.share for level in levels))


def is_improvement(source: VolumeUse | _Level, destination: VolumeUse | _Level, size: int) -> bool:
    """Whether the move of a partition of ``size`` bytes brings two used shares closer together."""
    # This is the first rule of the module, with both used shares multiplied by both capacities. The
    # part about the destination becomes: size * source.capacity < gap. The part about the source
    # becomes: size * destination.capacity < gap.
    return 0 < size * max(source.capacity, destination.capacity) < _gap(source, destination)


def _gap(source: VolumeUse | _Level, destination: VolumeUse | _Level) -> int:
    """Return the difference of the two used shares, times both capacities."""
    return source.used * destination.capacity - destination.used * source.capacity


@dataclass(slots=True)
class _Level:
    """How full a volume is after the moves so far.

    ``used`` is the size of its partitions in bytes. ``movable`` are the partitions that may still
    leave the volume, each as its size and its number, ascending. A partition that has moved to this
    volume may not move again.
    """

    ordinal: int
    capacity: int
    used: int
    movable: list[tuple[int, int]]

    @classmethod
    def of(cls, volume: VolumeUse, movable: Set[int]) -> _Level:
        """Return the level of a volume before the first move. Empty partitions never move."""
        sizes = sorted((size, p) for p, size in volume.sizes.items() if p in movable and size > 0)
        return cls(volume.ordinal, volume.capacity, volume.used, sizes)

    @property
    def share(self) -> Fraction:
        """The used share."""
        return Fraction(self.used, self.capacity)


def _perform_best_move(levels: Sequence[_Level]) -> PlannedMove | None:
    """Perform the next move on ``levels`` and return it; None if the pool cannot be improved."""
    for source, destination in _unbalanced_pairs(levels):
        best = _best_fit(source, destination)
        if best is not None:
            size, partition = best
            source.movable.remove(best)
            source.used -= size
            destination.used += size
            return PlannedMove(partition, source.ordinal, destination.ordinal, size)
    return None


def _unbalanced_pairs(levels: Sequence[_Level]) -> Iterator[tuple[_Level, _Level]]:
    """Yield the pairs of a source and a destination of which at least one is beyond the tolerance.

    The used share of the destination is below that of the source. Sources are in descending order
    of their used shares; for each source, destinations are in ascending order.
    """
    average = Fraction(sum(each.used for each in levels), sum(each.capacity for each in levels))
    highest, lowest = average * (1 + TOLERANCE), average * (1 - TOLERANCE)
    ascending = sorted((level.share, level.ordinal, level) for level in levels)
    for source_share, _, source in reversed(ascending):
        for destination_share, _, destination in ascending:
            if destination_share >= source_share:
                break
            if source_share > highest or destination_share < lowest:
                yield source, destination


def _best_fit(source: _Level, destination: _Level) -> tuple[int, int] | None:
    """Return size and number of the partition that is to move; None if none fits.

    Of the partitions that fit, it is the one whose move brings the two used shares closest
    together.
    """
    movable = source.movable
    gap, capacities = _gap(source, destination), source.capacity + destination.capacity
    # A move of ``size`` bytes makes the gap smaller by size * capacities. So a partition of exactly
    # gap / capacities bytes has the ideal size. The best size is the largest one up to the ideal
    # size, or the smallest one above it.
    num_up_to_ideal = bisect_right(movable, gap // capacities, key=lambda entry: entry[0])
    candidates = movable[num_up_to_ideal : num_up_to_ideal + 1]
    if num_up_to_ideal > 0:
        largest_size, _ = movable[num_up_to_ideal - 1]
        # Of several partitions of one size, the one with the lowest number moves. It is the first
        # of them, and no number is below 0.
        first_of_size = bisect_left(movable, (largest_size, -1))
        # The smaller of two sizes with the same effect moves: `min` returns the first minimum.
        candidates.insert(0, movable[first_of_size])
    fitting = [entry for entry in candidates if _fits(source, destination, entry[0])]
    return min(fitting, key=lambda entry: abs(entry[0] * capacities - gap), default=None)


def _fits(source: _Level, destination: _Level, size: int) -> bool:
    """Whether the move of a partition of ``size`` bytes meets both rules of the module."""
    gap, capacities = _gap(source, destination), source.capacity + destination.capacity
    gap_after = gap - size * capacities
    # Only a partition above the ideal size makes the difference negative.
    is_too_large = 2 * -gap_after > gap
    return not is_too_large and is_improvement(source, destination, size)
