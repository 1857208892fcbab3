"""The values of the public API: transactions, drafts and attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, Generic, NoReturn, Protocol, Self, TypedDict, cast

from typing_extensions import TypeVar

from waltz.protocol.locks import Lock
from waltz.protocol.records import ReqId

MAX_DATA_BYTES = 64 << 20
"""The limit for the data of one transaction, and of all transactions of one batch."""

DataT = TypeVar("DataT", default=Any)
"""The type of data that an application appends and reads: bytes, or its serializer's type."""

DataT_co = TypeVar("DataT_co", covariant=True, default=Any)
"""The same for classes that only return data, such as `Transaction`."""


class Serializer(Protocol[DataT]):
    """Converts an application's values to bytes and back."""

    def serialize(self, value: DataT, /) -> bytes:
        """Return the bytes of ``value``."""

    def deserialize(self, data: bytes, /) -> DataT:
        """Return the value that ``data`` encodes."""


_SLOTS = ("_req_id", "data", "header", "id", "partition")
"""The attributes of a `Transaction`; ``_req_id`` is the request id, which may be encoded."""


class _Fields:
    """The fields of a `Transaction`, in an object whose fields can be set.

    `transactions_of` makes objects of this class, and changes their class to `Transaction`. The
    comment in `Transaction` gives the reason.
    """

    __slots__ = _SLOTS

    def __init__(
        self, partition: int, transaction_id: int, req_id: ReqId | bytes, header: int, data: Any
    ) -> None:
        self.partition = partition
        self.id = transaction_id
        self._req_id = req_id
        self.header = header
        self.data = data


class Transaction(_Fields, Generic[DataT_co]):
    """A committed transaction in a stream.

    ``req_id`` is the request id of its append. ``header`` is the number that was passed to append.
    ``data`` is None if the stream was opened without ``data=True``. Otherwise it is the value of
    the client's serializer, or bytes without a serializer.

    A transaction is immutable, and equal to every other transaction with the same fields.
    """

    # For speed, this is not a frozen dataclass: to make one takes several times as long, and a
    # stream makes hundreds of thousands of transactions per second. Instead, the fields are set
    # while the object has the class `_Fields`. Then it gets this class, which refuses to set them.
    # The request id is decoded when it is first used.

    __slots__ = ()
    __match_args__ = ("partition", "id", "req_id", "header", "data")

    partition: int
    id: int
    header: int
    data: DataT_co

    def __init__(
        self,
        partition: int,
        id: int,  # noqa: A002 - the name of the field
        req_id: ReqId,
        header: int,
        data: DataT_co,
    ) -> None:
        for name, value in zip(_SLOTS, (req_id, data, header, id, partition), strict=True):
            object.__setattr__(self, name, value)

    @property
    def req_id(self) -> ReqId:
        """The request id of the append."""
        req_id = self._req_id
        if isinstance(req_id, bytes):
            req_id = ReqId.decode(req_id)
            object.__setattr__(self, "_req_id", req_id)
        return req_id

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._values() == cast("Transaction[Any]", other)._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = zip(self.__match_args__, self._values(), strict=True)
        return f"Transaction({', '.join(f'{name}={value!r}' for name, value in shown)})"

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), self._values()

    def _values(self) -> tuple[object, ...]:
        return (self.partition, self.id, self.req_id, self.header, self.data)


TransactionRow = tuple[int, bytes, int, int, Any]
"""Transaction id, encoded request id, header, length of the data, and the data or their value.

`stream_ranges` uses the length; here it is not used."""


def transactions_of(partition: int, rows: Iterable[TransactionRow]) -> list[Transaction[Any]]:
    """Return the transactions of ``rows``."""
    transactions = [
        _Fields(partition, transaction_id, req_id, header, data)
        for transaction_id, req_id, header, _, data in rows
    ]
    for transaction in transactions:
        transaction.__class__ = Transaction
    return cast("list[Transaction[Any]]", transactions)


@dataclass(frozen=True, slots=True)
class Draft(Generic[DataT_co]):
    """A transaction to append.

    ``mark`` is the id of the last transaction that the caller's decision takes into account. A
    transaction takes its write and append locks. The server refuses the draft if a transaction
    after ``mark``, even one of this client, took one of the draft's write or read locks. The server
    may also refuse a draft without such a conflict, because different locks can share an entry of
    its lock table.

    In `LogClient.submit`, a draft without a mark gets the mark of the attempt. A draft of a batch
    must not have a mark, because the batch has one.
    """

    data: DataT_co
    header: int = 0
    write_locks: Iterable[Lock] = ()
    read_locks: Iterable[Lock] = ()
    append_locks: Iterable[Lock] = ()
    mark: int | None = None


class StreamBounds(TypedDict, total=False):
    """Where a stream begins and ends: keyword arguments of `LogClient.stream`."""

    after: int
    until: int | Mapping[int, int] | None


def stream_bounds(
    partitions: int | Mapping[int, int], after: int, until: int | Mapping[int, int] | None
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return where a stream begins and ends in each partition: two mappings from partition to id.

    The arguments are those of `LogClient.stream`. The first mapping has for each partition the
    transaction after which the stream begins. The second mapping has the last transaction of each
    partition that has one. It may also have partitions that are not in the stream.
    """
    marks = {partitions: after} if isinstance(partitions, int) else dict(partitions)
    if until is None:
        return marks, {}
    ends = dict.fromkeys(marks, until) if isinstance(until, int) else until
    return marks, ends


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of `LogClient.submit`. ``number`` counts the attempts from 1.

    ``mark`` is the largest id that this client knows to be in the log. Locks are checked against
    this mark if the draft has no mark. After a lock failure, ``conflict`` is a transaction that the
    caller's state must contain before the caller decides again; otherwise it is None.
    """

    partition: int
    number: int
    mark: int
    conflict: int | None = None
