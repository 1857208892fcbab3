"""The table of marks: for each partition the last transaction that was applied.

Touches the SQL database.

The columns are those of Waltz 0.13.2, so that clients of both versions can use the same database.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, insert, select, update
from sqlalchemy.engine import Connection, CursorResult

from waltz.protocol.records import NO_TRANSACTION
from waltz.state.core.errors import RowCountUnknown


class Marks:
    """Reads and writes the table ``name``."""

    def __init__(self, name: str, metadata: MetaData) -> None:
        self.table = Table(
            name,
            metadata,
            Column("partition_id", Integer, primary_key=True, autoincrement=False),
            Column("high_water_mark", BigInteger, nullable=False),
        )

    def read(self, connection: Connection, partition: int) -> int | None:
        """Return the mark of ``partition``, None if the table has no row for it."""
        columns = self.table.c
        query = select(columns.high_water_mark).where(columns.partition_id == partition)
        return cast("int | None", connection.execute(query).scalar())

    def insert(self, connection: Connection, partition: int) -> None:
        """Add a row for ``partition`` with the mark -1.

        Raises IntegrityError if the table has a row for it.
        """
        connection.execute(
            insert(self.table).values(partition_id=partition, high_water_mark=NO_TRANSACTION)
        )

    def advance(self, connection: Connection, partition: int, transaction_id: int) -> bool:
        """Move the mark from ``transaction_id`` - 1 to ``transaction_id``.

        Returns False, and changes nothing, if the mark is not ``transaction_id`` - 1. Because of
        this condition, each transaction is applied once, even if several processes try to apply the
        same transaction. Raises RowCountUnknown if the driver does not return whether the row was
        changed. The caller must then roll back the SQL transaction.
        """
        columns = self.table.c
        result: CursorResult[Any] = connection.execute(
            update(self.table)
            .where(columns.partition_id == partition)
            .where(columns.high_water_mark == transaction_id - 1)
            .values(high_water_mark=transaction_id)
        )
        if result.rowcount < 0:
            raise RowCountUnknown(partition, transaction_id)
        return result.rowcount == 1
