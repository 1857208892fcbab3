"""Streams as Spark follows them. Touches what `reading` touches.

What a micro-batch takes is decided in `admission`; the rows are read as a batch's are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from waltz.client import WaltzError
from waltz.spark.batch import SliceTask, read_slice, rows_per_task
from waltz.spark.core.admission import (
    Offset,
    admit_bytes,
    admit_rows,
    available,
    offset_of,
    positions_of,
    spans_between,
)
from waltz.spark.core.filters import Wanted
from waltz.spark.core.options import ReadOptions
from waltz.spark.core.payload import Payload
from waltz.spark.core.planning import choose_partitions, cut, starting_positions
from waltz.spark.reading import READERS, LogReader, Where

T = TypeVar("T")


class WaltzStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed
    """Asked for offsets in one process, as long as the query runs; copied into every task."""

    def __init__(self, where: Where, options: ReadOptions, payload: Payload) -> None:
        self._where = where
        self._options = options
        self._payload = payload
        self._marks: dict[int, int] = {}
        self._target: dict[int, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - this and the following are Spark's names
        """Return where a new query begins. Raises OptionError, waltz.WaltzError."""

        def begin(reader: LogReader) -> Offset:
            marks = reader.marks(self._chosen(reader))
            return offset_of(starting_positions(self._options, marks))

        return self._asking(begin)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next micro-batch ends. Raises OptionError, waltz.WaltzError."""

        def decide(reader: LogReader) -> Offset:
            starts = positions_of(start, self._chosen(reader))
            ends = self._available(reader, starts)
            if self._target is not None:
                ends = {
                    partition: min(end, self._target[partition]) for partition, end in ends.items()
                }
            return offset_of(self._admit(reader, starts, ends, limit))

        return self._asking(decide)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return what the options maxRowsPerTrigger and maxBytesPerTrigger say."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the logs' ends when they were last asked for, so that Spark can tell the lag."""
        if not self._marks:
            return None
        return offset_of({partition: mark + 1 for partition, mark in self._marks.items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the logs' present ends: the query stops there."""

        def note(reader: LogReader) -> dict[int, int]:
            return {p: mark + 1 for p, mark in reader.marks(self._chosen(reader)).items()}

        self._target = self._asking(note)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a micro-batch. Raises PositionMissing, waltz.WaltzError."""

        def plan(reader: LogReader) -> list[InputPartition]:
            chosen = self._chosen(reader)
            starts, ends = positions_of(start, chosen), positions_of(end, chosen)
            if any(end > self._marks.get(partition, -1) + 1 for partition, end in ends.items()):
                # Planned by an earlier run: the log may have become another one since.
                there = self._available(reader, ends)
                ends = {partition: min(end, there[partition]) for partition, end in ends.items()}
            found = spans_between(starts, ends)
            return [
                SliceTask(part) for part in cut(found, rows_per_task(self._options, reader, found))
            ]

        return self._asking(plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one task's transactions as Arrow batches."""
        assert isinstance(partition, SliceTask)
        yield from read_slice(self._where, partition.part, self._options, self._payload, Wanted())

    def stop(self) -> None:
        """Close the connections."""
        READERS.forget(self._where)

    def _chosen(self, reader: LogReader) -> tuple[int, ...]:
        return choose_partitions(self._options, reader.num_partitions)

    def _available(self, reader: LogReader, starts: Mapping[int, int]) -> dict[int, int]:
        self._marks = reader.marks_from(starts)
        return available(starts, self._marks, go_on_if_missing=self._options.go_on_if_missing)

    def _admit(
        self,
        reader: LogReader,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        limit: ReadLimit,
    ) -> dict[int, int]:
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
            behind = spans_between(starts, ends)
            samples = reader.sample((p, first) for p, (first, _) in behind.items())
            ends = admit_bytes(starts, ends, size, samples)
        return dict(ends)

    def _asking(self, ask: Callable[[LogReader], T]) -> T:
        """Return what ``ask`` finds out, over connections that stay open between triggers."""
        try:
            return ask(READERS.at(self._where))
        except WaltzError:
            READERS.forget(self._where)
            raise
