"""The values of the public API: transactions, drafts and attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict

from typing_extensions import TypeVar

from waltz.protocol.locks import Lock
from waltz.protocol.records import ReqId

MAX_DATA_BYTES = 64 << 20
"""The limit of the data of one transaction."""


DataT = TypeVar("DataT", default=Any)
"""The type of data that an application appends and reads: bytes, or that of its serializer."""

DataT_co = TypeVar("DataT_co", covariant=True, default=Any)


class Serializer(Protocol[DataT]):
    """Turns an application's values into bytes and back."""

    def serialize(self, value: DataT, /) -> bytes:
        """Return the bytes of ``value``."""

    def deserialize(self, data: bytes, /) -> DataT:
        """Return the value of ``data``."""


@dataclass(frozen=True, slots=True)
class Transaction(Generic[DataT_co]):
    """A committed transaction in a stream.

    ``header`` is the number that was given to append. ``data`` is None unless the stream was opened
    with ``data=True``; with a serializer it is a value of the serializer.
    """

    partition: int
    id: int
    req_id: ReqId
    header: int
    data: DataT_co


@dataclass(frozen=True, slots=True)
class Draft(Generic[DataT_co]):
    """A transaction to append.

    ``mark`` is the last transaction that the caller's decision takes into account. The server
    refuses the draft if another client took one of its write or read locks after it, by a write or
    append lock. In `LogClient.submit` the default is the mark of the attempt.
    """

    data: DataT_co
    header: int = 0
    write_locks: Iterable[Lock] = ()
    read_locks: Iterable[Lock] = ()
    append_locks: Iterable[Lock] = ()
    mark: int | None = None


class StreamBounds(TypedDict, total=False):
    """The ends of a stream: keyword arguments of `LogClient.stream`."""

    after: int
    until: int | Mapping[int, int] | None


def stream_bounds(
    partitions: int | Mapping[int, int], after: int, until: int | Mapping[int, int] | None
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the transaction after which each partition begins, and the last one of those that end.

    The arguments are those of `LogClient.stream`.
    """
    marks = {partitions: after} if isinstance(partitions, int) else dict(partitions)
    ends = dict.fromkeys(marks, until) if isinstance(until, int) else until or {}
    return marks, ends


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of `LogClient.submit`; ``number`` counts from 1.

    ``mark`` is the last transaction that this client has been fed. Locks are checked against it
    unless the draft has a mark. After a lock failure ``conflict`` is the transaction that the
    caller's state must reflect before it decides again.
    """

    partition: int
    number: int
    mark: int
    conflict: int | None = None
