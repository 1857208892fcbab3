"""The base class of contexts, and the builder by which a context builds a transaction. Pure."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Literal

from waltz.client.core.values import DataT, Draft
from waltz.protocol.locks import Lock
from waltz.sync.callbacks.core.errors import DataMissing


class _Missing(Enum):
    """The type of `_MISSING`, so that type checkers know this one value."""

    DATA = "no data yet"


_MISSING: Final = _Missing.DATA
"""The data before ``execute`` has set it. Not None, because None may be data."""


@dataclass(slots=True)
class TransactionBuilder(Generic[DataT]):
    """A transaction that is being built.

    ``execute`` must set ``data``, and may set the other fields.
    """

    data: DataT | Literal[_Missing.DATA] = _MISSING
    header: int = 0
    write_locks: Iterable[Lock] = ()
    read_locks: Iterable[Lock] = ()
    append_locks: Iterable[Lock] = ()

    def draft(self, mark: int) -> Draft[DataT]:
        """Return the draft of the transaction. Raises DataMissing.

        A server refuses the append if a lock was taken after ``mark``.
        """
        if self.data is _MISSING:
            raise DataMissing
        return Draft(
            self.data,
            header=self.header,
            write_locks=tuple(self.write_locks),
            read_locks=tuple(self.read_locks),
            append_locks=tuple(self.append_locks),
            mark=mark,
        )


class TransactionContext(abc.ABC, Generic[DataT]):
    """Builds a transaction that an application appends, and has callbacks that report the end.

    An error in `partition_id` is raised by ``submit``. An error in a callback (``on_…``) is
    reported to the application's ``uncaught_exception`` and has no other effect.
    """

    def partition_id(self, num_partitions: int) -> int:
        """Return the partition to append to. The default is 0."""
        return 0

    @abc.abstractmethod
    def execute(self, builder: TransactionBuilder[DataT]) -> bool:
        """Build a transaction from the application's present state and return True.

        Return False if there is nothing to append. After a lock failure this method is called
        again, with a new builder. If this method raises an error, `on_exception` is called. If it
        was the first call of this method, ``submit`` raises the same error in addition.
        """

    def on_completion(self, result: bool) -> None:
        """Report that the transaction is in the log (True), or that `execute` returned False."""

    def on_application(self) -> None:
        """Report that the transaction is in the log and was applied."""

    def on_lock_failure(self) -> None:
        """Report that another transaction took a lock, and that `execute` will be called again."""

    def on_exception(self, error: Exception) -> None:
        """Report that the context has failed with ``error`` and will not be retried."""
