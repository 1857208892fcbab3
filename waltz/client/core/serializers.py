"""Serializers for bytes, text, JSON, and dataclasses as JSON. Pure.

A client that is opened with a serializer (`waltz.connect`) appends and reads values of the
serializer's type. Any object with the two methods of `Serializer` is a serializer. This module has
no serializer for pickle: programs of other versions and other languages read the log, and
unpickling can run any code that the bytes name.

`append_of` uses the client's serializer to make an `Append` of a `Draft`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any, Generic, TypeVar

from waltz.client.core.append_values import Append
from waltz.client.core.arguments import checked_header, checked_locks, checked_mark
from waltz.client.core.errors import DataTooLarge
from waltz.client.core.values import MAX_DATA_BYTES, Draft
from waltz.protocol.batches import MAX_LOCKS
from waltz.protocol.records import checksum

T = TypeVar("T")


class BytesSerializer:
    """Returns bytes unchanged. A client without a serializer also appends and reads bytes."""

    def serialize(self, value: bytes) -> bytes:
        """Return ``value``."""
        return value

    def deserialize(self, data: bytes) -> bytes:
        """Return ``data``."""
        return data


class TextSerializer:
    """Encodes text as UTF-8."""

    def serialize(self, value: str) -> bytes:
        """Encode ``value``. Raises TypeError, or UnicodeEncodeError if it has a surrogate."""
        if not isinstance(value, str):
            raise TypeError(f"data is {type(value).__name__}, not str: this client appends text")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        """Decode ``data``. Raises UnicodeDecodeError."""
        return data.decode()


class JsonSerializer:
    """Encodes values as JSON in UTF-8.

    Keys are sorted and there are no spaces, so that the bytes do not depend on the order of keys.
    """

    def serialize(self, value: Any) -> bytes:
        """Encode ``value``.

        Raises TypeError for a type that JSON lacks, ValueError for NaN, infinities and surrogates.
        """
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
        return text.encode()

    def deserialize(self, data: bytes) -> Any:
        """Decode ``data``. Raises ValueError if it is not JSON."""
        return json.loads(data)


class DataclassSerializer(Generic[T]):
    """Encodes instances of one dataclass as JSON objects.

    The fields must have JSON types: text, numbers, booleans, None, lists and dictionaries. A field
    with a default may be added later: then it has the default in older transactions. An unknown
    field in the data raises an error; if it were ignored, its value would be lost.
    """

    def __init__(self, kind: type[T]) -> None:
        """Serialize instances of ``kind``.

        Raises TypeError if ``kind`` is no dataclass, or cannot be created from its fields.
        """
        if not dataclasses.is_dataclass(kind):
            raise TypeError(f"{kind.__name__} is not a dataclass: decorate it with @dataclass")
        self._kind = kind
        self._fields = tuple(field.name for field in dataclasses.fields(kind))
        # Refuse a class whose instances can be encoded, but not created again from their fields: no
        # reader could decode such data, and what is in the log cannot be corrected.
        try:
            inspect.signature(kind).bind(**dict.fromkeys(self._fields))
        except TypeError as error:
            raise TypeError(
                f"{kind.__name__} cannot be created from its fields: {error}; __init__ must take "
                "every field, also one with init=False, and other parameters need a default"
            ) from error
        self._json = JsonSerializer()

    def serialize(self, value: T) -> bytes:
        """Encode ``value``.

        Raises TypeError if ``value`` is of another class or a field has no JSON type, ValueError
        for NaN, infinities and surrogates.
        """
        if type(value) is not self._kind:
            raise TypeError(f"{type(value).__name__} is not {self._kind.__name__}")
        return self._json.serialize({name: getattr(value, name) for name in self._fields})

    def deserialize(self, data: bytes) -> T:
        """Decode ``data``. Raises ValueError if it is not a JSON object with these fields."""
        fields = self._json.deserialize(data)
        if not isinstance(fields, dict):
            raise ValueError(f"{self._kind.__name__} is a JSON object, not {fields!r}")
        try:
            return self._kind(**fields)
        except TypeError as error:
            raise ValueError(f"not the fields of {self._kind.__name__}: {error}") from error


def encode_data(serializer: Any, value: object) -> bytes:
    """Return the bytes of ``value``. If ``serializer`` is None, ``value`` must be bytes already.

    Raises TypeError, DataTooLarge, and the errors of the serializer.
    """
    data = value if serializer is None else serializer.serialize(value)
    if not isinstance(data, bytes):
        raise TypeError(
            f"data is {type(data).__name__}, not bytes: encode it, or open the client with a "
            "serializer"
        )
    if len(data) > MAX_DATA_BYTES:
        raise DataTooLarge(len(data), MAX_DATA_BYTES)
    return data


def append_of(draft: Draft[Any], serializer: Any, mark: int | None) -> Append:
    """Return the append of ``draft`` with ``mark``; the mark of the draft is not used.

    Raises the errors of `encode_data`, those of `waltz.client.core.arguments`, and ValueError for
    more than `MAX_LOCKS` locks.
    """
    data = encode_data(serializer, draft.data)
    append = Append(
        data,
        checksum(data),
        checked_header(draft.header),
        checked_locks("write_locks", draft.write_locks),
        checked_locks("read_locks", draft.read_locks),
        checked_locks("append_locks", draft.append_locks),
        checked_mark(mark),
    )
    if append.num_locks > MAX_LOCKS:
        raise ValueError(f"{append.num_locks} locks: an append takes at most {MAX_LOCKS}")
    return append
