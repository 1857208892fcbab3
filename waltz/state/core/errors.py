"""What can go wrong with a state store, beside the database's own errors. Pure."""

from __future__ import annotations

from waltz.client.core.errors import WaltzError


class MarkMismatch(WaltzError):
    """The database's mark is not where this process has brought it."""

    def __init__(self, partition: int, transaction_id: int, mark: int) -> None:
        super().__init__(
            f"transaction {transaction_id} of partition {partition} is to be applied, but the "
            f"database is at {mark}: it was restored or changed by others; start this process "
            "again, so that it begins where the database is"
        )
        self.partition = partition
        self.transaction_id = transaction_id
        self.mark = mark


class NotYourTransaction(WaltzError, RuntimeError):
    """The application tried to end an SQL transaction that is not its own."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} is not for the application: its changes and the mark are committed together "
            "after apply has returned; raise an exception to have them undone"
        )
