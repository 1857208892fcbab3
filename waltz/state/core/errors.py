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


class NotYourTransaction(WaltzError, RuntimeError):
    """The application tried to end the SQL transaction of the state store."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"apply must not call {call}: the changes and the mark are committed together after "
            "apply has returned; raise an exception to undo them"
        )
