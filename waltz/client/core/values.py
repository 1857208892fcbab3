"""What the public API gives and takes: transactions, drafts of them, attempts to append. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict

from typing_extensions import TypeVar

from waltz.protocol.locks import Lock
from waltz.protocol.records import ReqId

MAX_DATA_BYTES = 64 << 20
"""The most data that one transaction may hold."""


DataT = TypeVar("DataT", default=Any)
"""What an application appends and reads: bytes, or what its serializer makes of them."""

DataT_co = TypeVar("DataT_co", covariant=True, default=Any)


class Serializer(Protocol[DataT]):
    """Turns an application's values into bytes and back."""

    def serialize(self, value: DataT, /) -> bytes:
        """Return the bytes of ``value``."""

    def deserialize(self, data: bytes, /) -> DataT:
        """Return the value of ``data``."""


@dataclass(frozen=True, slots=True)
class Transaction(Generic[DataT_co]):
    """A committed transaction as a stream shows it.

    ``data`` is None unless the stream was asked for it; with a serializer it is what that makes
    of the bytes.
    """

    partition: int
    id: int
    req_id: ReqId
    header: int
    data: DataT_co


@dataclass(frozen=True, slots=True)
class Draft(Generic[DataT_co]):
    """A transaction to be appended.

    It is refused if a write or read lock was taken, by another's write or append lock, after the
    transaction ``mark``: the last one that the caller's state reflects. Without a ``mark`` it is
    the attempt's.
    """

    data: DataT_co
    header: int = 0
    write_locks: Iterable[Lock] = ()
    read_locks: Iterable[Lock] = ()
    append_locks: Iterable[Lock] = ()
    mark: int | None = None


class StreamBounds(TypedDict, total=False):
    """From where to where a stream goes, as keyword arguments of ``stream``."""

    after: int
    until: int | Mapping[int, int] | None


def stream_bounds(
    partitions: int | Mapping[int, int], after: int, until: int | Mapping[int, int] | None
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return after which id each partition's stream begins, and with which id those end that do.

    The arguments are those of `waltz.Client.stream`.
    """
    marks = {partitions: after} if isinstance(partitions, int) else dict(partitions)
    ends = dict.fromkeys(marks, until) if isinstance(until, int) else until or {}
    return marks, ends


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
