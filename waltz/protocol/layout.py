"""Encode and decode messages by tables of their layouts. Pure.

`client_server`, `storage` and `admin` have one table each. Like the table of spec/wire.md section
4, such a table has for each message the class, the type byte, the fields in order, and the first
version that has the message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from waltz.protocol.fields import Codec, MalformedMessage, Reader
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
    """One message: its class, its type byte, its fields in order, its first version."""

    message: type
    code: int
    fields: tuple[Field, ...] = ()
    since: int = 0


class MessageTable:
    """Encodes and decodes the messages of one protocol. ``prefix`` begins every message."""

    def __init__(
        self, spec: ProtocolSpec, prefix: tuple[Field, ...], layouts: Iterable[Layout]
    ) -> None:
        self._spec = spec
        self._by_class: dict[type, Layout] = {}
        self._by_code: dict[int, Layout] = {}
        for layout in layouts:
            full = Layout(layout.message, layout.code, prefix + layout.fields, layout.since)
            assert layout.code not in self._by_code, "two messages have one type byte"
            self._by_class[layout.message] = self._by_code[layout.code] = full

    def encode(self, message: Any, version: int) -> bytes:
        """Return the whole frame of ``message``; raises UnsupportedByPeer."""
        return b"".join(self.encode_parts(message, version))

    def encode_parts(self, message: Any, version: int) -> list[bytes]:
        """Return the frame in parts, which the caller sends in order. Long parts are not copied."""
        layout = self._by_class[type(message)]
        if layout.since > version:
            raise UnsupportedByPeer(
                f"{layout.message.__name__} needs {self._spec.name} version {layout.since}, "
                f"the peer speaks {version}: upgrade it"
            )
        out = [bytes((layout.code,))]
        for field in layout.fields:
            value, codec = getattr(message, field.name), field.codec_at(version)
            if codec is not None:
                codec.write(out, value)
            elif value != field.absent:
                raise UnsupportedByPeer(
                    f"{field.name} needs {self._spec.name} version {field.since}, "
                    f"the peer speaks {version}: upgrade it"
                )
        return frame_parts(self._spec.magic, version, out)

    def decode(self, body: bytes, version: int) -> Any:
        """Return the message in ``body``; raises MalformedMessage."""
        layout = self._by_code.get(body[0]) if body else None
        if layout is None or layout.since > version:
            raise MalformedMessage(f"unknown message type: {body[0] if body else None}")
        reader = Reader(body, 1)
        values = []
        for field in layout.fields:
            codec = field.codec_at(version)
            values.append(field.absent if codec is None else codec.read(reader))
        reader.finish()
        return layout.message(*values)

    def messages(self) -> tuple[type, ...]:
        """Return the message classes, in the order of their type bytes."""
        return tuple(self._by_code[code].message for code in sorted(self._by_code))
