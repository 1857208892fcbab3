"""The class that an application with callbacks derives from. Writes to the log."""

from __future__ import annotations

import abc
import logging
from typing import Generic

from waltz.client import Transaction
from waltz.client.core.values import DataT

log = logging.getLogger(__name__)


class Application(abc.ABC, Generic[DataT]):
    """Computes a state from the log. The client calls its methods on its own threads."""

    @abc.abstractmethod
    def get_client_high_water_mark(self, partition: int) -> int:
        """Return the id of the last transaction that was applied to the state, -1 if none was.

        The client calls it when the partition becomes active, and keeps the mark from then on.
        """

    @abc.abstractmethod
    def apply_transaction(self, transaction: Transaction[DataT]) -> None:
        """Apply ``transaction`` to the state, and store its id as the partition's mark.

        If it raises, the client calls it again with the same transaction, until it succeeds. So it
        must be atomic: state and mark change together or not at all. `waltz.state.StateStore` does
        that with a database.
        """

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        """Report ``error``, which was raised while ``transaction_id`` was handled.

        This default logs it. The error comes from a method of the application or of a context, or
        from the partition's feed: ClientAhead, DataCorrupt, or an error of the serializer. The
        client mounts the partition again after a delay, except after ClientFailed.
        """
        log.error(
            "partition %d: transaction %d raised %s: %s",
            partition,
            transaction_id,
            type(error).__name__,
            error,
            exc_info=error,
        )
