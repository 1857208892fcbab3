"""What an application submits, and what it builds there. Pure; to be subclassed."""

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
    DATA = "no data yet"


_MISSING: Final = _Missing.DATA


@dataclass(slots=True)
class TransactionBuilder(Generic[DataT]):
    """A transaction in the making; ``execute`` sets what it wants. Data it must have."""

    data: DataT | Literal[_Missing.DATA] = _MISSING
    header: int = 0
    write_locks: Iterable[Lock] = ()
    read_locks: Iterable[Lock] = ()
    append_locks: Iterable[Lock] = ()

    def draft(self, mark: int) -> Draft[DataT]:
        """Return what was built, its locks to be checked against ``mark``. Raises DataMissing."""
        if self.data is _MISSING:
            raise DataMissing
        return Draft(
            self.data,
            self.header,
            tuple(self.write_locks),
            tuple(self.read_locks),
            tuple(self.append_locks),
            mark,
        )


class TransactionContext(abc.ABC, Generic[DataT]):
    """One thing that an application wants to append, and what it does when that happens.

    What these methods raise, other than `execute`, is reported to the application's
    ``uncaught_exception`` and changes nothing.
    """

    def partition_id(self, num_partitions: int) -> int:
        """Return the partition that it goes to; by default 0."""
        return 0

    @abc.abstractmethod
    def execute(self, builder: TransactionBuilder[DataT]) -> bool:
        """Decide by the application's present state: build a transaction, or return False.

        Called again, with a new builder, after a lock failure. What it raises goes to
        `on_exception`, and the first time also to the caller of ``submit``.
        """

    def on_completion(self, result: bool) -> None:
        """The transaction is in the log (True), or there was nothing to do (False)."""

    def on_application(self) -> None:
        """The transaction is in the log and was applied."""

    def on_lock_failure(self) -> None:
        """Somebody else took a lock meanwhile; `execute` will be called again."""

    def on_exception(self, error: Exception) -> None:
        """Nothing more will be done for this context, because of ``error``."""
