"""Encode and decode messages by tables of their layouts. Pure.

`client_server`, `storage` and `admin` have one table each. Like the table of spec/wire.md section
4, such a table has for each message the class, the type byte, the fields in order, and the first
version that has the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from waltz.protocol.fields import Codec, MalformedMessage, NumberCodec, Reader
from waltz.protocol.frames import ProtocolSpec, frame_parts


class UnsupportedByPeer(Exception):
    """The agreed protocol version lacks a message or a field. The peer must be upgraded."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: attribute ``name``, encoded by ``codec`` from version ``since`` on.

    Versions before ``since`` encode the field by ``older``. If that is None, these versions lack
    the field: encoding requires that the attribute equals ``absent``, and decoding sets it to
    ``absent``.
    """

    name: str
    codec: Codec
    since: int = 0
    older: Codec | None = None
    absent: Any = None

    def codec_at(self, version: int) -> Codec | None:
        """Return the codec that ``version`` uses, None if ``version`` lacks the field."""
        return self.codec if version >= self.since else self.older


@dataclass(frozen=True, slots=True)
class Layout:
    """One message: its class, its type byte, its fields in order, its first version.

    The attributes of the class must have the same order as the fields, because
    `MessageTable.decode` passes their values by position. In the bytes and in the class, the fields
    that all messages of the table have (the ``prefix`` of `MessageTable`) precede ``fields``.
    """

    message: type
    type_byte: int
    fields: tuple[Field, ...] = ()
    since: int = 0


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of a message in one protocol version.

    The *head* of a message is the type byte and the numbers that directly follow it. One struct
    packs or unpacks the whole head. This is for speed: a server encodes a request and decodes an
    answer for each storage and batch.
    """

    message: type
    type_byte: int
    head: struct.Struct
    head_values: Callable[[Any], tuple[Any, ...]]
    """Returns the numbers of a message's head."""
    fields: tuple[tuple[Field, Codec | None], ...]
    """The fields after the head, each with its codec; None: the version lacks the field."""


def _form_of(layout: Layout, version: int) -> _Form:
    """Return the form of a message in ``version``."""
    fields = [(field, field.codec_at(version)) for field in layout.fields]
    names, formats = [], []
    for field, codec in fields:
        if not isinstance(codec, NumberCodec):
            break
        names.append(field.name)
        formats.append(codec.layout.format.removeprefix(">"))
    if len(names) < 2:
        # Put no number into the head, only the type byte. For a single name, `attrgetter` would
        # return the number itself, but ``head_values`` must return a tuple.
        names, formats = [], []
    return _Form(
        layout.message,
        layout.type_byte,
        head=struct.Struct("".join((">B", *formats))),
        head_values=attrgetter(*names) if names else lambda _: (),
        fields=tuple(fields[len(names) :]),
    )


class MessageTable:
    """Encodes and decodes the messages of one protocol.

    ``prefix`` has the fields that every message has directly after its type byte. ``layouts`` has
    one entry for each message.
    """

    def __init__(
        self, spec: ProtocolSpec, prefix: tuple[Field, ...], layouts: Iterable[Layout]
    ) -> None:
        self._spec = spec
        self._by_class: dict[type, Layout] = {}
        self._by_type_byte: dict[int, Layout] = {}
        for layout in layouts:
            full = Layout(layout.message, layout.type_byte, prefix + layout.fields, layout.since)
            assert layout.type_byte not in self._by_type_byte, "two messages have one type byte"
            self._by_class[layout.message] = self._by_type_byte[layout.type_byte] = full
        self._forms: dict[tuple[int, int], _Form] = {}
        """The forms used so far, by type byte and version."""

    def encode(self, message: Any, version: int) -> bytes:
        """Return the whole frame of ``message``.

        Raises UnsupportedByPeer if ``version`` lacks the message, or a field that is not absent.
        """
        return b"".join(self.encode_parts(message, version))

    def encode_parts(self, message: Any, version: int) -> list[bytes]:
        """Return the frame in parts, which the caller sends in order. Long parts are not copied.

        Raises UnsupportedByPeer as `encode` does.
        """
        layout = self._by_class[type(message)]
        if layout.since > version:
            raise UnsupportedByPeer(
                f"{layout.message.__name__} needs {self._spec.name} version {layout.since}, "
                f"the peer speaks {version}: upgrade it"
            )
        form = self._forms.get((layout.type_byte, version)) or self._add_form(layout, version)
        out = [form.head.pack(form.type_byte, *form.head_values(message))]
        for field, codec in form.fields:
            value = getattr(message, field.name)
            if codec is not None:
                codec.write(out, value)
            elif value != field.absent:
                raise UnsupportedByPeer(
                    f"{field.name} needs {self._spec.name} version {field.since}, "
                    f"the peer speaks {version}: upgrade it"
                )
        return frame_parts(self._spec.magic, version, out)

    def decode(self, body: bytes, version: int) -> Any:
        """Return the message in ``body``, which begins with the type byte.

        Raises MalformedMessage.
        """
        if not body:
            raise MalformedMessage("empty message")
        type_byte = body[0]
        form = self._forms.get((type_byte, version))
        if form is None:
            layout = self._by_type_byte.get(type_byte)
            if layout is None or layout.since > version:
                raise MalformedMessage(f"unknown message type: {type_byte}")
            form = self._add_form(layout, version)
        if not form.fields and len(body) == form.head.size:
            # A shortcut for speed: most answers of storages have no field after the head.
            return form.message(*form.head.unpack(body)[1:])
        reader = Reader(body)
        _, *values = reader.take_numbers(form.head)
        for field, codec in form.fields:
            values.append(field.absent if codec is None else codec.read(reader))
        reader.finish()
        return form.message(*values)

    def _add_form(self, layout: Layout, version: int) -> _Form:
        """Make and keep the form of a message that is used for the first time in ``version``."""
        form = self._forms[layout.type_byte, version] = _form_of(layout, version)
        return form

    def messages(self) -> tuple[type, ...]:
        """Return the message classes, in the order of their type bytes."""
        return tuple(self._by_type_byte[number].message for number in sorted(self._by_type_byte))
