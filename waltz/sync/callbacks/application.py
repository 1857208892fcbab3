"""The class that an application with callbacks derives from. Writes to the log."""

from __future__ import annotations

import abc
import logging
from typing import Generic

from waltz.client import Transaction
from waltz.client.core.values import DataT

log = logging.getLogger(__name__)


class Application(abc.ABC, Generic[DataT]):
    """Keeps a state that follows from the log. Its methods are called on the client's threads."""

    @abc.abstractmethod
    def get_client_high_water_mark(self, partition: int) -> int:
        """Return the last transaction that the state reflects, -1 if there is none.

        It is called when the partition becomes active. From then on the client keeps the mark.
        """

    @abc.abstractmethod
    def apply_transaction(self, transaction: Transaction[DataT]) -> None:
        """Change the state by ``transaction``, and keep its id as the partition's mark.

        If it raises, it is called again with the same transaction, until it succeeds. So it must
        change everything or nothing. `waltz.state.StateStore` does that with a database.
        """

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        """Report ``error``, which was raised while ``transaction_id`` was handled. Logs it.

        The error comes from a method of the application or of a context, or from the partition's
        feed: ClientAhead, DataCorrupt, or an error of the serializer. The partition is mounted
        again after a delay, except after ClientFailed.
        """
        log.error(
            "partition %d: transaction %d raised %s: %s",
            partition,
            transaction_id,
            type(error).__name__,
            error,
            exc_info=error,
        )
