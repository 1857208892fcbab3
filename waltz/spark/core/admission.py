"""A stream's offsets, and how much of the backlog a micro-batch takes. Pure.

An offset is, for each partition, the first transaction id that has not been read: both as text,
because JSON numbers are not exact beyond 53 bits everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waltz.client.core.ranges import format_partitions
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.planning import PositionMissing, Span

Offset = dict[str, str]
"""As Spark keeps it in the checkpoint."""


def offset_of(positions: Mapping[int, int]) -> Offset:
    """Return the offset that says ``positions``."""
    return {str(partition): str(at) for partition, at in sorted(positions.items())}


def positions_of(offset: Mapping[str, object], chosen: Iterable[int]) -> dict[int, int]:
    """Return what an offset says. Raises OptionError if it is not about the ``chosen`` partitions.

    It comes from a checkpoint, which may have been written for something else.
    """
    try:
        positions = {int(partition): int(str(at)) for partition, at in offset.items()}
    except ValueError:
        raise OptionError(
            f"the checkpoint says {dict(offset)!r}, which is not an offset of the waltz source: "
            "use another checkpointLocation"
        ) from None
    chosen = tuple(sorted(chosen))
    if tuple(sorted(positions)) != chosen:
        raise OptionError(
            f"the checkpoint is of a stream of the partitions {format_partitions(positions)}, but "
            f"this one reads {format_partitions(chosen)}: set the option partitions as it was, or "
            "use another checkpointLocation"
        )
    return positions


def available(
    starts: Mapping[int, int], marks: Mapping[int, int], *, go_on_if_missing: bool
) -> dict[int, int]:
    """Return the end of what there is to read of each partition, its mark's successor.

    It is below the start if the log has become shorter, which is an error unless one may go on
    from there. Raises PositionMissing.
    """
    for partition, start in starts.items():
        if start > marks[partition] + 1 and not go_on_if_missing:
            what = "where the stream goes on"
            raise PositionMissing(what, partition, start, marks[partition])
    return {partition: mark + 1 for partition, mark in marks.items()}


def admit_rows(starts: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return earlier ends so that at most ``limit`` rows are read, shared as the backlog is."""
    backlog = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    total = sum(backlog.values())
    if total <= limit:
        return dict(ends)
    admitted, seen = {}, 0
    for partition, rows in sorted(backlog.items()):
        # Rounding what is shared so far, and not each share, gives away exactly the limit.
        taken = limit * (seen + rows) // total - limit * seen // total
        seen += rows
        admitted[partition] = starts[partition] + taken if rows else ends[partition]
    return admitted


def admit_bytes(
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    limit: int,
    samples: Mapping[int, tuple[int, int]],
) -> dict[int, int]:
    """Return earlier ends so that about ``limit`` bytes are read, but at least one row.

    ``samples`` are rows and their bytes, by partition, for all that have a backlog.
    """
    backlog = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    size = sum(
        backlog[partition] * sample_bytes // sample_rows
        for partition, (sample_rows, sample_bytes) in samples.items()
    )
    if size <= limit:
        return dict(ends)
    return admit_rows(starts, ends, max(1, sum(backlog.values()) * limit // size))


def spans_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, Span]:
    """Return what there is between two offsets, without what is empty."""
    return {
        partition: (start, ends[partition])
        for partition, start in sorted(starts.items())
        if start < ends[partition]
    }
