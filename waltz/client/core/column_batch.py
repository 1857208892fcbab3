"""A batch of transactions as columns, for programs that read a log fast. Pure.

A batch of thousands of transactions is one object, and a column is made when it is first used. To
iterate over transactions as objects takes several times as long.

The records of a batch stay in the bytes in which the server sent them: in wire form, or in their
form on disk. Both forms begin with the same fields. The form on disk has a checksum more before the
data.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from waltz.protocol.records import WIRE_HEAD, WIRE_OVERHEAD_BYTES, RecordBatch, ReqId
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES, StoredBatch
from waltz.runtime.extras import needs_extra

_, _CLIENT_ID, _GENERATION, _, _SEQ, _HEADER, _LENGTH = range(7)
"""The positions of fields in `WIRE_HEAD`, and so in `ColumnBatch._columns`.

The first field is the transaction id, the fourth the partition.
"""


class ColumnBatch:
    """One or more transactions of ``partition`` with consecutive ids, as columns.

    All columns have the order of the ids: position 0 is the transaction ``ids[0]``. The client has
    verified the checksums of all data. Data are bytes, also if the client has a serializer.
    """

    def __init__(self, partition: int, records: RecordBatch | StoredBatch) -> None:
        assert records.count, "a batch has at least one transaction"
        self.partition = partition
        self._records = records
        # The bytes of a record before its data, and all its bytes except its data.
        if isinstance(records, StoredBatch):
            self._head_bytes, self._overhead = STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES
        else:
            self._head_bytes, self._overhead = WIRE_HEAD.size, WIRE_OVERHEAD_BYTES

    def __len__(self) -> int:
        return self._records.count

    def __repr__(self) -> str:
        return f"<ColumnBatch partition={self.partition} ids={self.ids}>"

    @cached_property
    def ids(self) -> range:
        """The transaction ids."""
        records = self._records
        # Not `_bytes`, which copies records that came in their form on disk.
        raw = records.raw if isinstance(records, StoredBatch) else records.wire
        (first, *_) = WIRE_HEAD.unpack_from(raw)
        return range(first, first + self._records.count)

    @property
    def headers(self) -> Sequence[int]:
        """For each transaction its header, a number of the application."""
        return self._columns[_HEADER]

    @property
    def client_ids(self) -> Sequence[int]:
        """For each transaction the id of the client that appended it."""
        return self._columns[_CLIENT_ID]

    @property
    def generations(self) -> Sequence[int]:
        """For each transaction the generation of its request id."""
        return self._columns[_GENERATION]

    @property
    def seqs(self) -> Sequence[int]:
        """For each transaction the sequence number of its request id."""
        return self._columns[_SEQ]

    @property
    def req_ids(self) -> list[ReqId]:
        """For each transaction its request id. Each use makes a new list, so keep the list."""
        # The four fields of a request id are adjacent.
        return list(map(ReqId, *self._columns[_CLIENT_ID : _SEQ + 1]))

    @property
    def buffer(self) -> bytes:
        """The bytes that contain the data of all transactions, at the positions in `spans`.

        Between the data are other fields of the records.
        """
        return self._bytes

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """For each transaction the position in `buffer` where its data begin, and where they end.

        A program that parses `buffer` at these positions copies no data.
        """
        spans, start = [], self._head_bytes
        for length in self._columns[_LENGTH]:
            spans.append((start, start + length))
            start += length + self._overhead
        return spans

    @cached_property
    def data(self) -> list[bytes]:
        """For each transaction a copy of its data."""
        buffer = self._bytes
        return [buffer[start:end] for start, end in self.spans]

    def to_arrow(self) -> Any:
        """Return the batch as a `pyarrow.RecordBatch`; needs ``waltz-log[columns]``.

        The columns are partition, transaction_id, client_id, generation, seq, header and data.
        Raises ExtraMissing, an ImportError.
        """
        with needs_extra("to_arrow", "columns"):
            from waltz.client.core.arrow_records import to_arrow
        return to_arrow(self._records)

    def to_pandas(self) -> Any:
        """Return the batch as a `pandas.DataFrame` with the columns of `to_arrow`.

        Needs ``waltz-log[columns]``. Raises ExtraMissing, an ImportError.
        """
        with needs_extra("to_pandas", "columns"):
            import pandas as pd  # noqa: F401 - pyarrow needs it, and reports it less clearly
        return self.to_arrow().to_pandas()

    @cached_property
    def _bytes(self) -> bytes:
        """The bytes of the records. They are copied if they came in their form on disk."""
        records = self._records
        return bytes(records.raw) if isinstance(records, StoredBatch) else records.wire

    @cached_property
    def _columns(self) -> list[tuple[int, ...]]:
        """For each field of `WIRE_HEAD` a tuple with the values of all transactions."""
        raw, count = self._bytes, self._records.count
        size = len(raw) // count
        if len(raw) == size * count and size >= self._overhead:
            # If all records have this size, no loop in Python is needed. Read the heads where they
            # would be then. All records have this size if each head has the data length that
            # belongs to it: each record then ends where the next head was read.
            after_head = size - WIRE_HEAD.size
            equal_heads = struct.iter_unpack(f"{WIRE_HEAD.format}{after_head}x", raw)
            columns = list(zip(*equal_heads, strict=True))
            if columns[_LENGTH] == (size - self._overhead,) * count:
                return columns
        heads, position = [], 0
        for _ in range(count):
            head = WIRE_HEAD.unpack_from(raw, position)
            heads.append(head)
            position += head[_LENGTH] + self._overhead
        return list(zip(*heads, strict=True))
