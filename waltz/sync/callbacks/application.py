"""What an application is told by its client. Pure; to be subclassed."""

from __future__ import annotations

import abc
import logging
from typing import Generic

from waltz.client import Transaction
from waltz.client.core.values import DataT

log = logging.getLogger(__name__)


class Application(abc.ABC, Generic[DataT]):
    """Keeps a state that follows from the log. Called on the client's threads."""

    @abc.abstractmethod
    def get_client_high_water_mark(self, partition: int) -> int:
        """Return the last transaction that the state reflects, -1 if none.

        Asked when the partition becomes active; from then on the client counts by itself.
        """

    @abc.abstractmethod
    def apply_transaction(self, transaction: Transaction[DataT]) -> None:
        """Change the state as ``transaction`` says, and keep its id as the partition's mark.

        If it raises, it is called again with the same transaction, until it does not. So either
        everything must be done or nothing; `waltz.state.StateStore` does that with a database.
        """

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        """Something raised ``error`` while ``transaction_id`` was to be handled; logs it.

        That is a method of the application or of a context, or the partition's feed: ClientAhead,
        DataCorrupt, a serializer's error. All but ClientFailed is tried again, after a pause.
        """
        log.error(
            "transaction %d of partition %d: %s: %s",
            transaction_id,
            partition,
            type(error).__name__,
            error,
            exc_info=error,
        )
