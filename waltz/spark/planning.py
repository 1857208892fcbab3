"""From options and the logs' ends to slices: what is read, and which task reads what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waltz.ranges import format_partitions
from waltz.spark.options import Edge, OptionError, Positions, ReadOptions


@dataclass(frozen=True, slots=True)
class Slice:
    """Neighbouring transactions of one partition, both ends included. Never empty."""

    partition: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


def choose_partitions(options: ReadOptions, num_partitions: int) -> tuple[int, ...]:
    """Return the partitions to read, of a cluster with ``num_partitions``. Raises OptionError."""
    chosen = options.partitions
    if chosen is None:
        chosen = tuple(range(num_partitions))
    elif chosen[-1] >= num_partitions:
        raise OptionError(
            f"the option partitions names {chosen[-1]}, but the cluster has only partitions 0 to "
            f"{num_partitions - 1}"
        )
    for name, positions in _named(options):
        for partition in positions.by_partition:
            if partition not in chosen:
                raise OptionError(
                    f"the option {name} names partition {partition}, which is not read: the "
                    f"partitions read are {format_partitions(chosen)}"
                )
    return chosen


def plan(options: ReadOptions, marks: Mapping[int, int]) -> list[Slice]:
    """Return the slices to read, each for one task, by partition and id.

    ``marks`` are the high-water marks of the partitions to read: nothing after them is read, so
    that the result is the same however long it takes. Raises OptionError for positions that a log
    does not reach.
    """
    slices: list[Slice] = []
    for partition, mark in sorted(marks.items()):
        first = _resolve(options.start, partition, mark)
        end = _resolve(options.end, partition, mark)
        for (name, _), position in zip(_named(options), (first, end), strict=True):
            if position > mark + 1:
                raise OptionError(
                    f"the option {name} is {position} for partition {partition}, whose log ends "
                    f"at transaction {mark}: it is from another cluster, or too early to ask"
                )
        if first > end:
            raise OptionError(
                f"partition {partition} is to be read from {first} until before {end}: "
                "startingPositions must not be after endingPositions"
            )
        slices += _cut(partition, first, end, options.rows_per_task)
    return slices


def _named(options: ReadOptions) -> tuple[tuple[str, Positions], tuple[str, Positions]]:
    return ("startingPositions", options.start), ("endingPositions", options.end)


def _resolve(positions: Positions, partition: int, mark: int) -> int:
    match positions.by_partition.get(partition, positions.otherwise):
        case Edge.EARLIEST:
            return 0
        case Edge.LATEST:
            return mark + 1
        case position:
            return position


def _cut(partition: int, first: int, end: int, rows: int) -> Iterable[Slice]:
    """Yield slices of nearly equal length, as few as ``rows`` allows."""
    count = end - first
    parts = -(-count // rows)
    for part in range(parts):
        yield Slice(
            partition, first + count * part // parts, first + count * (part + 1) // parts - 1
        )
