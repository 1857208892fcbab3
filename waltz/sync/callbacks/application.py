"""The base class of an application with callbacks. Touches nothing, but may write a log line."""

from __future__ import annotations

import abc
import logging
from typing import Generic

from waltz.client import Transaction
from waltz.client.core.values import DataT

log = logging.getLogger(__name__)


class Application(abc.ABC, Generic[DataT]):
    """Computes a state from the transaction log. The client's threads call the methods."""

    @abc.abstractmethod
    def get_client_high_water_mark(self, partition: int) -> int:
        """Return the id of the last transaction that the state contains, -1 if it contains none.

        The client calls this method when the partition becomes active. Afterwards the client itself
        keeps this mark. If this method calls the client's ``set_partitions`` or ``close``, they
        raise InCallback.
        """

    @abc.abstractmethod
    def apply_transaction(self, transaction: Transaction[DataT]) -> None:
        """Apply ``transaction`` to the state, and store its id as the partition's mark.

        If this method raises an error, the client calls it again with the same transaction, until
        it succeeds. So this method must be atomic: state and mark change together or not at all.
        `waltz.state.StateStore` ensures this by a database.
        """

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        """Report ``error``, which was raised by `apply_transaction`, by a callback or by the feed.

        The default method logs the error. ``transaction_id`` is the transaction that could not be
        applied. For an error of a context's callback or of the feed, ``transaction_id`` is the one
        after the partition's mark. An error of the feed is one that `LogStream.batches` raises,
        except ClientClosed.

        After an error of `apply_transaction` or of the feed, the client mounts the partition again
        after a delay. After ClientFailed, the partition is not mounted again.
        """
        log.error(
            "partition %d: %s: %s; the client continues with transaction %d, unless the client has "
            "failed: all transactions before it are applied",
            partition,
            type(error).__name__,
            error,
            transaction_id,
            exc_info=error,
        )
