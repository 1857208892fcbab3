"""Transactions as columns: the data source's schema and its Arrow batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from waltz.client import Transaction

ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("transaction_id", pa.int64()),
        ("client_id", pa.int32()),
        ("generation", pa.int32()),
        ("seq", pa.int32()),
        ("header", pa.int32()),
        ("data", pa.binary()),
    ]
)
"""The columns, all of which may be null as far as Spark and Arrow are told."""


def to_arrow(transactions: Sequence[Transaction]) -> Any:
    """Return the transactions, which have their data as bytes, as one `pyarrow.RecordBatch`."""
    ids = [t.req_id for t in transactions]
    columns: list[list[Any]] = [
        [t.partition for t in transactions],
        [t.id for t in transactions],
        [r.client_id for r in ids],
        [r.generation for r in ids],
        [r.seq for r in ids],
        [t.header for t in transactions],
        [t.data for t in transactions],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
