"""Offsets of a stream, and the share of the backlog that a micro-batch takes. Pure.

An *offset* maps each partition to a *position*: the first transaction id that has not been read.
Partitions and ids are text, because some implementations of JSON round numbers of more than 53
bits. An offset also has the key of its cluster, because in another cluster the ids are those of
other transactions. Offsets that earlier versions of this source have written have no key. They are
accepted for any cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from waltz.protocol.notation import format_partitions
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import CLUSTER_KEY, cluster_key_in
from waltz.spark.core.slices import OtherCluster, PositionMissing, Sample, Span

Offset = dict[str, str]
"""An offset as Spark stores it in the checkpoint."""


def offset_of(positions: Mapping[int, int], key: UUID) -> Offset:
    """Encode positions in the cluster with ``key`` as an offset."""
    texts = {str(partition): str(at) for partition, at in sorted(positions.items())}
    return {CLUSTER_KEY: str(key)} | texts


def next_offset(
    start: Offset, starts: Mapping[int, int], ends: Mapping[int, int], key: UUID
) -> Offset:
    """Return the offset of the positions ``ends``.

    The stream is at the offset ``start``, whose positions are ``starts``. Spark compares the two
    offsets as texts, and runs a micro-batch if they differ. So if ``ends`` are the same positions,
    ``start`` itself is returned, even if it has no key. The next offset with other positions gets
    the key.
    """
    return start if ends == starts else offset_of(ends, key)


def positions_of(offset: Mapping[str, object], chosen: Iterable[int], key: UUID) -> dict[int, int]:
    """Decode an offset to positions.

    ``chosen`` are the partitions that are read: the offset must have a position for each of them,
    and for no other. ``key`` is the key of the cluster that is read.

    The offset comes from a checkpoint, so it may not fit: the checkpoint may belong to another
    query, or the options may have named another cluster when it was written. Raises OptionError if
    the offset is malformed or of another stream, OtherCluster if it is of another cluster.
    """
    try:
        its_key = cluster_key_in(offset)
        positions = {
            int(partition): int(str(at))
            for partition, at in offset.items()
            if partition != CLUSTER_KEY
        }
        if any(at < 0 for at in positions.values()):
            raise ValueError("a position is the id of a transaction")
    except ValueError:
        raise OptionError(
            f"the checkpoint holds {dict(offset)!r}, which is not an offset of the waltz source: "
            "use another checkpointLocation"
        ) from None
    if its_key is not None and its_key != key:
        raise OtherCluster(
            "the checkpoint",
            its_key,
            key,
            "Let the options name the cluster of the checkpoint (waltz cluster key shows a "
            "cluster's key), or use another checkpointLocation, for a new query that begins at "
            "startingPositions",
        )
    chosen = tuple(sorted(chosen))
    if tuple(sorted(positions)) != chosen:
        raise OptionError(
            f"the checkpoint belongs to a stream of partitions {format_partitions(positions)}, but "
            f"this stream reads {format_partitions(chosen)}: set the option partitions to "
            f"{format_partitions(positions)}, or use another checkpointLocation"
        )
    return positions


def readable_ends(
    starts: Mapping[int, int], marks: Mapping[int, int], *, skip_missing: bool
) -> dict[int, int]:
    """Return the end of each partition's readable range: its mark plus one.

    If the log has become shorter, for example after a restore, the end may be below the start. Then
    PositionMissing is raised. With ``skip_missing``, the end stays below the start instead: nothing
    is read, and the stream goes on with the next transaction that is appended at this end.
    """
    for partition, start in starts.items():
        if start > marks[partition] + 1 and not skip_missing:
            raise PositionMissing("the stream's next position", partition, start, marks[partition])
    return {partition: mark + 1 for partition, mark in marks.items()}


def ends_at_target(
    starts: Mapping[int, int], ends: Mapping[int, int], target: Mapping[int, int]
) -> dict[int, int]:
    """Lower the ends to ``target``, but never below the starts.

    A query with the trigger AvailableNow stops at ``target``, the ends of the logs at its start.
    The target may be an old end, reported by a server that had not noticed that it had lost the
    partition. Such a target may be below what the stream has read. If the stream went back to the
    target, its next run would read transactions twice.
    """
    return {
        partition: min(end, max(starts[partition], target[partition]))
        for partition, end in ends.items()
    }


def admit_rows(starts: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """Lower the ends so that at most ``limit`` rows are read, in proportion to the backlogs.

    The backlog of a partition is the number of transactions from its start to its end.
    """
    backlog = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    total = sum(backlog.values())
    if total <= limit:
        return dict(ends)
    admitted, rows_before = {}, 0
    for partition, rows in sorted(backlog.items()):
        # Rounding the running sum, and not each share, distributes exactly the limit: a limit of 10
        # for three equal backlogs gives 3, 3 and 4 rows, but rounded shares would give 3, 3 and 3.
        taken = limit * (rows_before + rows) // total - limit * rows_before // total
        rows_before += rows
        # Without a backlog the end stays. It is below the start if the log has become shorter.
        admitted[partition] = starts[partition] + taken if rows else ends[partition]
    return admitted


def admit_bytes(
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    limit: int,
    samples: Mapping[int, Sample],
) -> dict[int, int]:
    """Lower the ends so that about ``limit`` bytes are read, but at least one row.

    ``samples`` has a sample of each partition with a backlog, from which the size of the backlog is
    estimated.
    """
    backlog = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    backlog_bytes = sum(
        backlog[partition] * sample.num_bytes // sample.rows
        for partition, sample in samples.items()
    )
    if backlog_bytes <= limit:
        return dict(ends)
    return admit_rows(starts, ends, max(1, sum(backlog.values()) * limit // backlog_bytes))


def spans_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, Span]:
    """Return the ranges from ``starts`` to ``ends`` that are not empty."""
    return {
        partition: (start, ends[partition])
        for partition, start in sorted(starts.items())
        if start < ends[partition]
    }
