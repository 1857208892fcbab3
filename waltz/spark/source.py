"""The data source ``waltz`` as Spark knows it. Touches what `reading` touches, and cluster.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from waltz.cluster_file import DEFAULT_ROOT, BadClusterFile, read_cluster_file
from waltz.net import TlsConfig
from waltz.spark.options import OptionError, ReadOptions, parse_options
from waltz.spark.planning import Slice, choose_partitions, plan
from waltz.spark.reading import LogReader, Readers, Where

SCHEMA = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("transaction_id", LongType()),
        StructField("client_id", IntegerType()),
        StructField("generation", IntegerType()),
        StructField("seq", IntegerType()),
        StructField("header", IntegerType()),
        StructField("data", BinaryType()),
    ]
)
"""The columns: `batches.ARROW_SCHEMA` in Spark's types."""

_READERS = Readers()
"""Of this process: Spark gives its workers one task after the other, and nothing to keep."""


@dataclass
class SliceTask(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task reads."""

    part: Slice


class WaltzDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """A bounded range of a cluster's log; see `waltz.spark` for columns and options."""

    @classmethod
    def name(cls) -> str:
        """Return what goes into ``spark.read.format``."""
        return "waltz"

    def schema(self) -> StructType:
        """Return the columns. Raises OptionError, so that ``load`` fails and not what follows."""
        parse_options(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans the tasks and runs in them. Raises OptionError."""
        if schema != SCHEMA:
            raise OptionError(
                f"the waltz source has the columns {', '.join(SCHEMA.names)} and no others: leave "
                "out schema(), and select or cast afterwards"
            )
        options = parse_options(self.options)
        return WaltzReader(_locate(options), options)


class WaltzReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Planned where the query is planned; copied into every task."""

    def __init__(self, where: Where, options: ReadOptions) -> None:
        self._where = where
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix what is to be read, up to the logs' present ends, and cut it into tasks.

        Raises OptionError, waltz.WaltzError.
        """
        reader = LogReader(self._where, self._options.timeout_seconds)
        try:
            chosen = choose_partitions(self._options, reader.num_partitions)
            marks = reader.marks(chosen)
        finally:
            reader.close()
        return [SliceTask(part) for part in plan(self._options, marks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one task's transactions as Arrow batches."""
        # Without anything to read, Spark still runs one task: with an InputPartition of its own.
        if isinstance(partition, SliceTask):
            timeout = self._options.timeout_seconds
            yield from _READERS.read(self._where, partition.part, timeout)


def _locate(options: ReadOptions) -> Where:
    """Return the cluster that the options name. Raises OptionError."""
    if options.cluster_file is None:
        assert options.zookeeper is not None
        root = options.root or DEFAULT_ROOT
        return Where(options.zookeeper, root, options.tls or TlsConfig())
    try:
        described = read_cluster_file(options.cluster_file)
    except BadClusterFile as problem:
        raise OptionError(f"the option cluster names {options.cluster_file}: {problem}") from None
    tls = options.tls or TlsConfig(enabled=described.tls)
    return Where(described.zookeeper, options.root or described.root, tls)
