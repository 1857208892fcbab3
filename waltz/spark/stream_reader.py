"""The reader that Spark calls for streams. Touches the network and ZooKeeper.

`core.offsets` decides the ranges of a micro-batch; `batch_reader` reads the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from waltz.client import WaltzError
from waltz.protocol.records import NO_TRANSACTION
from waltz.spark.batch_reader import SliceTask, read_slice, rows_per_task
from waltz.spark.core.filters import RowFilter
from waltz.spark.core.offsets import (
    Offset,
    admit_bytes,
    admit_rows,
    ends_at_target,
    next_offset,
    offset_of,
    positions_of,
    readable_ends,
    spans_between,
)
from waltz.spark.core.options import ReadOptions
from waltz.spark.core.payload import PayloadDecoder
from waltz.spark.core.slices import (
    check_cluster_key,
    choose_partitions,
    cut_into_slices,
    starting_positions,
)
from waltz.spark.log_reader import READER_CACHE, ClusterLocation, SparkLogReader

T = TypeVar("T")


class WaltzStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed
    """Reads a stream. One object decides offsets while the query runs; every task has a copy."""

    def __init__(
        self, location: ClusterLocation, options: ReadOptions, decoder: PayloadDecoder
    ) -> None:
        self._location = location
        self._options = options
        self._decoder = decoder
        self._marks: dict[int, int] = {}
        """The high-water marks that were read last."""
        self._key: UUID | None = None
        """The key of the cluster that the marks are of."""
        self._target: dict[int, int] | None = None
        """The ends at which the query stops; None for a query that runs until it is stopped."""

    def initialOffset(self) -> Offset:  # noqa: N802 - this and the following are Spark's names
        """Return the first offset of a new query. Raises OptionError, waltz.WaltzError."""

        def begin(reader: SparkLogReader) -> Offset:
            key = reader.cluster_key()
            check_cluster_key(self._options, key)
            marks = reader.marks(self._chosen(reader))
            return offset_of(starting_positions(self._options, marks), key)

        return self._with_reader(begin)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end offset of the next micro-batch. Raises OptionError, waltz.WaltzError."""

        def decide(reader: SparkLogReader) -> Offset:
            key = reader.cluster_key()
            starts = positions_of(start, self._chosen(reader), key)
            ends = self._readable_ends(reader, starts)
            if self._target is not None:
                ends = ends_at_target(starts, ends, self._target)
            return next_offset(start, starts, self._admit(reader, starts, ends, limit), key)

        return self._with_reader(decide)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that maxRowsPerTrigger or maxBytesPerTrigger sets.

        If both options are set, this is the limit of the rows, and `_admit` adds that of the bytes.
        """
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the logs' ends that were read last; Spark computes the lag from them."""
        if self._key is None:
            return None
        ends = {partition: mark + 1 for partition, mark in self._marks.items()}
        return offset_of(ends, self._key)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the logs' present ends, at which the query will stop."""

        def record(reader: SparkLogReader) -> dict[int, int]:
            marks = reader.marks(self._chosen(reader))
            return {partition: mark + 1 for partition, mark in marks.items()}

        self._target = self._with_reader(record)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a micro-batch. Raises PositionMissing, waltz.WaltzError."""

        def plan(reader: SparkLogReader) -> list[InputPartition]:
            chosen, key = self._chosen(reader), reader.cluster_key()
            starts, ends = positions_of(start, chosen, key), positions_of(end, chosen, key)
            if any(
                position > self._marks.get(partition, NO_TRANSACTION) + 1
                for partition, position in ends.items()
            ):
                # This object has read no marks that reach these ends. So an earlier driver of the
                # query has planned this micro-batch, and a restarted one repeats it. Meanwhile the
                # log may have been restored from an older copy, which is shorter. The next
                # micro-batch starts at ``ends``. So they are checked as starts: an end beyond the
                # log raises PositionMissing here, before rows are read. If missingPositions is
                # continue, nothing is raised, and this micro-batch ends where the log ends.
                present = self._readable_ends(reader, starts=ends)
                ends = {
                    partition: min(position, present[partition])
                    for partition, position in ends.items()
                }
            wanted = spans_between(starts, ends)
            rows = rows_per_task(self._options, reader, wanted)
            return [SliceTask(part) for part in cut_into_slices(wanted, rows)]

        return self._with_reader(plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the transactions of a task, a `SliceTask`, as Arrow batches."""
        assert isinstance(partition, SliceTask)
        # Spark pushes no filters to a stream: the empty `RowFilter` passes all rows.
        yield from read_slice(
            self._location, partition.part, self._options, self._decoder, RowFilter()
        )

    def stop(self) -> None:
        """Close the connections."""
        READER_CACHE.forget(self._location)

    def _chosen(self, reader: SparkLogReader) -> tuple[int, ...]:
        """Return the partitions that the options choose."""
        return choose_partitions(self._options, reader.num_partitions)

    def _readable_ends(self, reader: SparkLogReader, starts: Mapping[int, int]) -> dict[int, int]:
        """Read the marks, keep them in ``_marks``, and return where each partition's log ends.

        An end is the mark plus one. It is below the start if the log has become shorter; then
        PositionMissing is raised, unless the option missingPositions is continue. A mark from a
        server that has lost its partition would look the same, so `confirmed_marks` reads the
        marks.
        """
        self._marks, self._key = reader.confirmed_marks(starts), reader.cluster_key()
        return readable_ends(starts, self._marks, skip_missing=self._options.skip_missing)

    def _admit(
        self,
        reader: SparkLogReader,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        limit: ReadLimit,
    ) -> dict[int, int]:
        """Lower ``ends`` to the limits of rows and bytes.

        The limits are those of the options maxRowsPerTrigger and maxBytesPerTrigger. Spark's
        ``limit`` of rows or of bytes replaces the option for the same unit. If ``limit`` is
        ReadAllAvailable, no limit applies.
        """
        rows, size = self._options.max_rows, self._options.max_bytes
        match limit:
            case ReadAllAvailable():
                return dict(ends)
            case ReadMaxRows():
                rows = limit.max_rows
            case ReadMaxBytes():
                size = limit.max_bytes
        if rows is not None:
            ends = admit_rows(starts, ends, rows)
        if size is not None:
            backlogs = spans_between(starts, ends)
            samples = reader.sample((p, first) for p, (first, _) in backlogs.items())
            ends = admit_bytes(starts, ends, size, samples)
        return dict(ends)

    def _with_reader(self, work: Callable[[SparkLogReader], T]) -> T:
        """Return ``work(reader)``. The reader stays open from call to call, except after errors."""
        try:
            return work(READER_CACHE.open(self._location))
        except WaltzError:
            READER_CACHE.forget(self._location)
            raise
