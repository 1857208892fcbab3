"""Read the data of transactions with the client's serializer; handle unreadable data. Pure."""

from __future__ import annotations

from typing import Any, Literal, assert_never

from waltz.client.core.errors import DataUnreadable
from waltz.client.core.values import Serializer

Unreadable = Literal["raise", "skip", "raw"]
"""What happens to data that the serializer cannot read: see `waltz.ClientOptions.unreadable`."""

SKIPPED = object()
"""`Deserializer.read` returns this for a transaction that a stream leaves out."""


class Deserializer:
    """Reads data with ``serializer`` (None: data are bytes); ``unreadable`` is for its errors."""

    __slots__ = ("_serializer", "_unreadable")

    def __init__(self, serializer: Serializer[Any] | None, unreadable: Unreadable) -> None:
        self._serializer = serializer
        self._unreadable = unreadable

    @property
    def returns_bytes(self) -> bool:
        """Whether `read` returns all data as they are."""
        return self._serializer is None

    def read(self, partition: int, transaction_id: int, data: bytes) -> Any:
        """Return the value of a transaction's data.

        If the serializer cannot read the data, return `SKIPPED` or the data, or raise
        DataUnreadable: see `Unreadable`.
        """
        if self._serializer is None:
            return data
        try:
            return self._serializer.deserialize(data)
        except Exception as error:
            match self._unreadable:
                case "raw":
                    return data
                case "skip":
                    return SKIPPED
                case "raise":
                    raise DataUnreadable(partition, transaction_id, data, error) from error
                case _:
                    assert_never(self._unreadable)

    def read_one(self, partition: int, transaction_id: int, data: bytes) -> Any:
        """Do the same as `read`, but raise DataUnreadable instead of returning `SKIPPED`.

        A stream can leave a transaction out. A read of one transaction must return it or fail.
        """
        if self._serializer is None:
            return data
        try:
            return self._serializer.deserialize(data)
        except Exception as error:
            if self._unreadable == "raw":
                return data
            raise DataUnreadable(partition, transaction_id, data, error) from error
