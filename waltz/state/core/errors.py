"""The errors of a state store, in addition to those of the database. Pure."""

from __future__ import annotations

from waltz.client.core.errors import WaltzError


class MarkMismatch(WaltzError):
    """The mark in the database is below the mark up to which this process has applied the log."""

    def __init__(self, partition: int, transaction_id: int, mark: int) -> None:
        super().__init__(
            f"transaction {transaction_id} of partition {partition} cannot be applied: the mark in "
            f"the database is {mark}, because it was restored or changed by another program; "
            "restart this process, which then begins at the mark in the database"
        )
        self.partition = partition
        self.transaction_id = transaction_id
        self.mark = mark


ROLLBACK = "rollback, or continue after the error of a statement outside of session.begin_nested()"
"""What `apply` has done if its SQL transaction was rolled back: some errors roll it back, too."""


class NotYourTransaction(WaltzError, RuntimeError):
    """The application ended the SQL transaction of the state store, or tried to.

    It ends the SQL transaction also by an error of a statement that it catches, if the database
    rolls back the whole SQL transaction after this error.
    """

    def __init__(self, call: str) -> None:
        super().__init__(
            f"apply must not call {call}: the changes and the mark are committed together after "
            "apply has returned; raise an exception to undo them"
        )


class RowCountUnknown(WaltzError):
    """The driver of the database does not return how many rows a statement has changed."""

    def __init__(self, partition: int, transaction_id: int) -> None:
        super().__init__(
            f"transaction {transaction_id} of partition {partition} cannot be applied: the driver "
            "of the database did not return how many rows an UPDATE has changed, which shows "
            "whether the transaction was applied before; nothing was changed; let the driver count "
            "rows (SQL Server: SET NOCOUNT OFF), or use another driver"
        )
        self.partition = partition
        self.transaction_id = transaction_id
