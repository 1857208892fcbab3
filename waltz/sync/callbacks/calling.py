"""Call the callbacks of contexts, and report their errors. Touches threads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic

from waltz.client.core.values import DataT
from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.core.progress import PartitionProgress
from waltz.sync.callbacks.workers import Workers, call_raising_exceptions_only

log = logging.getLogger(__name__)


class Callbacks(Generic[DataT]):
    """Calls the callbacks of one partition's contexts. The methods run on any thread."""

    def __init__(
        self,
        partition: int,
        application: Application[DataT],
        workers: Workers,
        progress: PartitionProgress[Any],
    ) -> None:
        self._partition = partition
        self._application = application
        self._workers = workers
        self._progress = progress

    def call(self, callback: Callable[..., None], *args: Any) -> None:
        """Call a callback of a context; report its error to the application.

        On a worker thread this method raises nothing, not even a SystemExit of the callback.
        Otherwise the caller would not end the context, and `flush` would wait forever. On a thread
        that submits, errors that are no Exception, such as KeyboardInterrupt, are raised.
        """
        try:
            if self._workers.on_worker_thread:
                call_raising_exceptions_only(partial(callback, *args))
            else:
                callback(*args)
        except Exception as error:
            self.report(self._progress.mark + 1, error)

    def report(self, transaction_id: int, error: Exception) -> None:
        """Call `uncaught_exception` of the application."""
        try:
            self._application.uncaught_exception(self._partition, transaction_id, error)
        except BaseException:
            # An error of `uncaught_exception` must not end `ActivePartition.run`: the partition
            # would not be applied any more.
            log.exception(
                "partition %d: the callback uncaught_exception raised an exception itself; "
                "continuing; it was called to report: %s",
                self._partition,
                error,
            )
