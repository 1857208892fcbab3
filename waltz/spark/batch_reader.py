"""The reader that Spark calls for ``spark.read``. Touches the network.

A *slice* is a range of one partition that one task reads (`core.slices`). `stream_reader` uses
`rows_per_task` and `read_slice`, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from waltz.spark.core.filters import RowFilter, narrow
from waltz.spark.core.options import ReadOptions
from waltz.spark.core.payload import PayloadDecoder
from waltz.spark.core.slices import (
    Slice,
    Span,
    check_cluster_key,
    choose_partitions,
    cut_into_slices,
    has_cluster_key,
    rows_of_size,
    wanted_spans,
)
from waltz.spark.log_reader import READER_CACHE, ClusterLocation, SparkLogReader


@dataclass
class SliceTask(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """The slice that one task reads."""

    part: Slice


class WaltzReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Reads logs once. One object plans the tasks in the driver; every task has a copy of it."""

    def __init__(
        self, location: ClusterLocation, options: ReadOptions, decoder: PayloadDecoder
    ) -> None:
        self._location = location
        self._options = options
        self._decoder = decoder
        self._row_filter = RowFilter()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks, which together read the logs up to their present ends.

        Raises OptionError, and the errors of `SparkLogReader`.
        """
        reader = SparkLogReader(self._location)
        try:
            # Otherwise there is nothing to compare, and the key is not read from ZooKeeper.
            if has_cluster_key(self._options):
                check_cluster_key(self._options, reader.cluster_key())
            chosen = choose_partitions(self._options, reader.num_partitions)
            # The mark of a partition that the query's filters exclude is not needed.
            allowed_partitions = self._row_filter.bounds_of("partition")
            marks = reader.marks(number for number in chosen if number in allowed_partitions)
            wanted = wanted_spans(self._options, marks, self._row_filter)
            rows = rows_per_task(self._options, reader, wanted)
        finally:
            reader.close()
        return [SliceTask(part) for part in cut_into_slices(wanted, rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the transactions of a task, a `SliceTask`, as Arrow batches."""
        # If there is nothing to read, Spark runs one task with an InputPartition of its own.
        if isinstance(partition, SliceTask):
            yield from read_slice(
                self._location, partition.part, self._options, self._decoder, self._row_filter
            )


class FilteringReader(WaltzReader):
    """Applies the query's filters, where possible before records are read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
        """Take the filters that `RowFilter` can express; return the others."""
        self._row_filter, not_expressed = narrow(self._row_filter, filters)
        return not_expressed


def rows_per_task(
    options: ReadOptions, reader: SparkLogReader, wanted: dict[int, Span]
) -> dict[int, int]:
    """Return the maximum number of rows per task, for each partition.

    ``wanted`` has the range to read of each partition. If the option bytesPerTask is set, a few
    records of each partition are read to learn their size. Raises the errors of
    `SparkLogReader.sample`.
    """
    if options.bytes_per_task is None:
        return dict.fromkeys(wanted, options.rows_per_task)
    samples = reader.sample((partition, first) for partition, (first, _) in wanted.items())
    return {
        partition: min(options.rows_per_task, rows_of_size(options.bytes_per_task, sample))
        for partition, sample in samples.items()
    }


def read_slice(
    location: ClusterLocation,
    part: Slice,
    options: ReadOptions,
    decoder: PayloadDecoder,
    row_filter: RowFilter,
) -> Iterator[Any]:
    """Yield, as decoded Arrow batches, the rows of a slice that pass ``row_filter``.

    Raises the errors of `SparkLogReader.read`, and DataMalformed.
    """
    reader = READER_CACHE.open(location)
    try:
        with closing(reader.read(part, from_replicas=options.from_replicas)) as batches:
            for batch in batches:
                yield decoder.decode(row_filter.rows(batch))
    except Exception:
        # Close the connections, which may be broken: the next attempt opens new ones.
        READER_CACHE.forget(location)
        raise
