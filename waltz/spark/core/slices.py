"""Plan a read: which range of a partition each task reads. Pure.

A *slice* is the range that one task reads; the slices of a partition are parts of its *span*. A
*mark* is the high-water mark of a partition: the id of its last committed transaction, -1 for an
empty log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from waltz.protocol.notation import format_partitions
from waltz.spark.core.filters import RowFilter
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import Edge, Positions, ReadOptions


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive transactions of one partition, both ends included. Never empty."""

    partition: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


Span = tuple[int, int]
"""A half-open range: the first transaction id to read, and the first one not to read."""


class Sample(NamedTuple):
    """The size of a few transactions of a partition, from which that of others is estimated."""

    rows: int
    num_bytes: int


class _PositionOption(NamedTuple):
    """An option that has positions: its name and its value."""

    name: str
    positions: Positions


class PositionMissing(OptionError):
    """A position is beyond the end of its log; the error text calls the position ``what``."""

    def __init__(self, what: str, partition: int, position: int, mark: int) -> None:
        super().__init__(
            f"{what} is transaction {position} of partition {partition}, but that log ends at "
            f"{mark}: the position belongs to another cluster, or the log was lost and restored. "
            "Correct the position, or set the option missingPositions to 'continue': the log's "
            "present end then replaces the position"
        )
        self.partition = partition
        self.position = position
        self.mark = mark


class OtherCluster(OptionError):
    """Positions are of another cluster than the one that the options name.

    The error text calls the positions ``what``, and ends with ``remedy``.
    """

    def __init__(self, what: str, its_key: UUID, present_key: UUID, remedy: str) -> None:
        super().__init__(
            f"{what} belongs to the cluster with the key {its_key}, but the options name the "
            f"cluster with the key {present_key}. Its transactions have other ids, so rows would "
            f"be skipped or read twice; nothing is read. {remedy}"
        )


def has_cluster_key(options: ReadOptions) -> bool:
    """Return whether an option with positions names the cluster that the positions are of."""
    return any(option.positions.cluster_key is not None for option in _position_options(options))


def check_cluster_key(options: ReadOptions, key: UUID) -> None:
    """Raise OtherCluster if the positions in options are not of the cluster with ``key``."""
    for name, positions in _position_options(options):
        if positions.cluster_key is not None and positions.cluster_key != key:
            raise OtherCluster(
                f"the option {name}",
                positions.cluster_key,
                key,
                "Correct the options that name the cluster (waltz cluster key shows a cluster's "
                "key), or remove clusterKey from the positions if they are meant for this cluster",
            )


def choose_partitions(options: ReadOptions, num_partitions: int) -> tuple[int, ...]:
    """Return the partitions to read, of a cluster with ``num_partitions``. Raises OptionError."""
    chosen = options.partitions
    if chosen is None:
        chosen = tuple(range(num_partitions))
    elif chosen[-1] >= num_partitions:  # `parse_partitions` returns them in ascending order.
        raise OptionError(
            f"the option partitions names {chosen[-1]}, but the cluster has only partitions 0 to "
            f"{num_partitions - 1}: correct the option"
        )
    for name, positions in _position_options(options):
        for partition in positions.by_partition:
            if partition not in chosen:
                raise OptionError(
                    f"the option {name} names partition {partition}, which is not read: the "
                    f"partitions read are {format_partitions(chosen)}"
                )
    return chosen


def wanted_spans(
    options: ReadOptions, marks: Mapping[int, int], row_filter: RowFilter | None = None
) -> dict[int, Span]:
    """Return the range to read of each partition, narrowed by the query's filters (``row_filter``).

    ``marks`` are the high-water marks of the partitions to read. Nothing after them is read, so the
    rows do not depend on how long the read takes. Empty ranges are left out. Raises OptionError for
    positions in the wrong order, PositionMissing for positions beyond a log's end.
    """
    ids = (row_filter or RowFilter()).bounds_of("transaction_id")
    starting, ending = _position_options(options)
    spans = {}
    for partition, mark in sorted(marks.items()):
        first = _position(options, starting, partition, mark)
        end = _position(options, ending, partition, mark)
        if first > end:
            raise OptionError(
                f"partition {partition}: startingPositions ({first}) is after endingPositions "
                f"({end}): exchange or correct them"
            )
        first, end = max(first, ids.low), min(end, ids.high + 1)
        if first < end:
            spans[partition] = (first, end)
    return spans


def starting_positions(options: ReadOptions, marks: Mapping[int, int]) -> dict[int, int]:
    """Return the first transaction id to be read of each partition. Raises PositionMissing."""
    starting, _ = _position_options(options)
    return {
        partition: _position(options, starting, partition, mark)
        for partition, mark in sorted(marks.items())
    }


def cut_into_slices(wanted: Mapping[int, Span], rows_per_task: Mapping[int, int]) -> list[Slice]:
    """Return the slices of the ranges in ``wanted``.

    ``rows_per_task`` has the maximum length of a slice of each partition. There are as few slices
    as it allows. Those of one partition have nearly equal lengths.
    """
    return [
        part
        for partition, (first, end) in sorted(wanted.items())
        for part in _cut(partition, first, end, rows_per_task[partition])
    ]


def rows_of_size(size: int, sample: Sample) -> int:
    """Return how many rows have about ``size`` bytes, at least 1.

    The estimate assumes that rows are on average as large as those of the sample.
    """
    return max(1, size * sample.rows // max(sample.num_bytes, 1))


def _position(options: ReadOptions, option: _PositionOption, partition: int, mark: int) -> int:
    """Return the position of ``partition`` in one of the `_position_options` of ``options``.

    If the position is beyond the log's end at ``mark``, return the end or raise PositionMissing.
    """
    position = _resolve(option.positions, partition, mark)
    if position <= mark + 1:
        return position
    if options.skip_missing:
        return mark + 1
    raise PositionMissing(f"the option {option.name}", partition, position, mark)


def _position_options(options: ReadOptions) -> tuple[_PositionOption, _PositionOption]:
    """Return the two options that have positions: where reading begins, and where it ends."""
    return (
        _PositionOption("startingPositions", options.start),
        _PositionOption("endingPositions", options.end),
    )


def _resolve(positions: Positions, partition: int, mark: int) -> int:
    """Return a partition's position as a transaction id; its log ends at ``mark``."""
    match positions.by_partition.get(partition, positions.otherwise):
        case Edge.EARLIEST:
            return 0
        case Edge.LATEST:
            return mark + 1
        case position:
            return position


def _cut(partition: int, first: int, end: int, rows: int) -> Iterable[Slice]:
    """Yield the slices of one range, each with at most ``rows`` transactions."""
    count = end - first
    slices = -(-count // rows)  # Rounded up.
    for number in range(slices):
        start, stop = count * number // slices, count * (number + 1) // slices
        yield Slice(partition, first + start, first + stop - 1)
