"""The columns of the log, in Spark's types. Pure."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

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
"""The columns; `ARROW_SCHEMA` of `waltz.client.core.arrow_records` has them in Arrow's types."""
