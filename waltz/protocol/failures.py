"""The error answer of a storage node (spec/wire.md sections 2, 6 and 7). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.fields import INT, TEXT, Reader

_SMALLEST_FRAME_BYTES = 16
"""A stack frame with empty texts has four ints: three lengths and the line number."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One line of a remote stack trace. It is for display only."""

    class_name: str | None
    method_name: str | None
    file_name: str | None
    line_number: int


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """An error of the storage node. ``message`` is a class name, a colon and a sentence.

    That is the form of an exception in Java, in which Waltz 0.13.2 is written. ``stack`` is empty
    unless the node is one of 0.13.2. Like every text on the wire, ``message`` can be None: then the
    node gives no reason.
    """

    message: str | None
    stack: tuple[StackFrame, ...] = ()


class RpcFailureCodec:
    """The message, then an int count, then that many stack frames."""

    def write(self, out: list[bytes], value: RpcFailure) -> None:
        """Append the encoded failure to ``out``."""
        TEXT.write(out, value.message)
        INT.write(out, len(value.stack))
        for frame in value.stack:
            TEXT.write(out, frame.class_name)
            TEXT.write(out, frame.method_name)
            TEXT.write(out, frame.file_name)
            INT.write(out, frame.line_number)

    def read(self, reader: Reader) -> RpcFailure:
        """Read a failure."""
        message = TEXT.read(reader)
        frames = tuple(
            StackFrame(TEXT.read(reader), TEXT.read(reader), TEXT.read(reader), INT.read(reader))
            for _ in range(reader.take_count(_SMALLEST_FRAME_BYTES))
        )
        return RpcFailure(message, frames)


FAILURE = RpcFailureCodec()
