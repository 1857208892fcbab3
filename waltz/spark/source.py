"""The data source ``waltz``: it creates the readers and writers for Spark.

Touches files, the environment, the network and ZooKeeper.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from waltz.spark.batch_reader import FilteringReader, WaltzReader
from waltz.spark.cluster_location import locate
from waltz.spark.core.options import ReadOptions, check_streaming, parse_options
from waltz.spark.core.payload import PayloadDecoder, payload_decoder
from waltz.spark.core.rows import columns_of
from waltz.spark.core.write_options import parse_write_options
from waltz.spark.sink import WaltzStreamWriter, WaltzWriter, refuse_overwriting
from waltz.spark.stream_reader import WaltzStreamReader


class WaltzDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """The format ``waltz``: Spark reads a cluster's log and appends to it.

    docs/spark.md lists the columns and the options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "waltz"

    def schema(self) -> StructType:
        """Return the columns. Raises OptionError: so ``load`` fails already, not a later action."""
        return payload_decoder(parse_options(self.options)).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises OptionError, and the errors of `locate`."""
        options, decoder = self._parsed(schema)
        return WaltzReader(locate(options.cluster), options, decoder)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a stream. Raises OptionError, and the errors of `locate`."""
        options, decoder = self._parsed(schema)
        check_streaming(options)
        return WaltzStreamReader(locate(options.cluster), options, decoder)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch.

        Raises OptionError, and the errors of `locate` and `WaltzWriter`.
        """
        refuse_overwriting(overwrite)
        columns, options = columns_of(schema), parse_write_options(self.options)
        return WaltzWriter(locate(options.cluster), options, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of micro-batches. Raises OptionError, and the errors of `locate`."""
        refuse_overwriting(overwrite)
        columns, options = columns_of(schema), parse_write_options(self.options)
        return WaltzStreamWriter(locate(options.cluster), options, columns)

    def _parsed(self, schema: StructType) -> tuple[ReadOptions, PayloadDecoder]:
        """Return the options and the decoder to columns of ``schema``. Raises OptionError."""
        options = parse_options(self.options)
        return options, payload_decoder(options, schema)


class FilteringDataSource(WaltzDataSource):
    """The data source for sessions with ``spark.sql.python.filterPushdown.enabled``.

    Spark refuses a source that accepts filters in a session that does not push them.
    """

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch, which accepts filters.

        Raises OptionError, and the errors of `locate`.
        """
        options, decoder = self._parsed(schema)
        return FilteringReader(locate(options.cluster), options, decoder)
