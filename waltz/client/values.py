"""What the public API gives and takes: transactions, drafts of them, attempts to append. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from waltz.protocol.locks import Lock
from waltz.protocol.records import ReqId

MAX_DATA_BYTES = 64 << 20
"""The most data that one transaction may hold."""


class Serializer(Protocol):
    """Turns an application's values into bytes and back."""

    def serialize(self, value: Any) -> bytes:
        """Return the bytes of ``value``."""

    def deserialize(self, data: bytes) -> Any:
        """Return the value of ``data``."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction as a stream shows it.

    ``data`` is None unless the stream was asked for it; with a serializer it is what that makes
    of the bytes.
    """

    partition: int
    id: int
    req_id: ReqId
    header: int
    data: Any = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A transaction to be appended.

    It is refused if a write or read lock was taken, by another's write or append lock, after the
    transaction ``mark``: the last one that the caller's state reflects. Without a ``mark`` it is
    the attempt's.
    """

    data: Any
    header: int = 0
    write_locks: Iterable[Lock] = ()
    read_locks: Iterable[Lock] = ()
    append_locks: Iterable[Lock] = ()
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to build and append a transaction; ``number`` counts from 1.

    ``mark`` is the last transaction that this client has been fed, and what locks are checked
    against unless the draft says otherwise. After a lock failure ``conflict`` is the transaction
    that the caller's own state must reflect before it decides again.
    """

    partition: int
    number: int
    mark: int
    conflict: int | None = None
