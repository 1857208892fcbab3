"""Read the records that ``waltz log append`` appends, from a file or standard input.

Touches standard input, disk and threads. Each record becomes the data of one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from waltz.cli.running import Failed

LENGTH_BYTES = 4
"""The size of the length before a record in the framing `Framing.LENGTH`."""
MAX_RECORD_BYTES = 64 << 20
"""The largest record that the protocol can transfer.

If the length before a record is larger, the input probably has another framing.
"""


class Framing(StrEnum):
    """How the input is divided into records."""

    LINES = "lines"
    """Each line is a record."""
    ONE = "one"
    """The whole input is one record."""
    LENGTH = "length"
    """Each record follows its length in bytes: `LENGTH_BYTES`, the most significant byte first."""


@contextmanager
def opened(source: Path | None) -> Iterator[BinaryIO]:
    """Open the file ``source`` while the context is open; None or ``-`` is standard input."""
    if source is None or str(source) == "-":
        try:
            descriptor = sys.stdin.fileno()
        except OSError:  # Standard input was replaced by an object in memory.
            yield sys.stdin.buffer
            return
        # Not ``sys.stdin.buffer``: at the end of the process, Python would close it, and would wait
        # for a thread that still reads from it.
        yield io.BufferedReader(io.FileIO(descriptor, closefd=False))
        return
    with source.open("rb") as file:
        yield file


async def records(stream: BinaryIO, framing: Framing) -> AsyncIterator[bytes]:
    """Yield the records of ``stream`` as they arrive.

    Raises Failed if the input ends within a record, or a record is larger than the protocol allows.
    The length of a line is not checked here: the client refuses a line that is too long.
    """
    match framing:
        case Framing.ONE:
            # If there is one byte more than the maximum, the input is too large.
            content = await _in_thread(stream.read, MAX_RECORD_BYTES + 1)
            if len(content) > MAX_RECORD_BYTES:
                raise Failed(f"the input exceeds {MAX_RECORD_BYTES >> 20} MiB, the largest record")
            yield content
        case Framing.LINES:
            while line := await _in_thread(stream.readline):
                yield line.removesuffix(b"\n")
        case Framing.LENGTH:
            number = 0
            while raw_length := await _in_thread(stream.read, LENGTH_BYTES):
                yield await _record_after_length(stream, raw_length, number)
                number += 1


async def _in_thread(read: Callable[..., bytes], *arguments: int) -> bytes:
    """Return what the blocking function ``read`` returns; call it on a thread of its own.

    The thread is a daemon, so Ctrl-C ends the process although the thread still waits for input. A
    process that has used `asyncio.to_thread` would wait for the thread. Raises what ``read``
    raises.
    """
    loop = asyncio.get_running_loop()
    content: asyncio.Future[bytes] = loop.create_future()

    def deliver(set_outcome: Callable[[Any], None], outcome: bytes | Exception) -> None:
        if not content.done():  # It is done already if the caller was cancelled.
            set_outcome(outcome)

    def work() -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
            try:
                read_bytes = read(*arguments)
            except Exception as error:
                loop.call_soon_threadsafe(deliver, content.set_exception, error)
            else:
                loop.call_soon_threadsafe(deliver, content.set_result, read_bytes)

    threading.Thread(target=work, name="input", daemon=True).start()
    return await content


async def _record_after_length(stream: BinaryIO, raw_length: bytes, number: int) -> bytes:
    """Return the record that follows its length in ``stream``.

    ``raw_length`` are the bytes of the length, which were read already. ``number`` is the number of
    records before this one, so texts of errors count records from 0. Raises Failed if the record is
    not complete, or too large.
    """
    # The text does not say that the earlier records are appended: their appends may be in flight,
    # and may still fail.
    incomplete = Failed(f"the input ends within record {number}, so this record is not appended")
    if len(raw_length) < LENGTH_BYTES:
        raise incomplete
    length = int.from_bytes(raw_length, "big")
    if length > MAX_RECORD_BYTES:
        raise Failed(
            f"record {number} of the input would have {length} bytes, more than the largest "
            f"record ({MAX_RECORD_BYTES >> 20} MiB): each record must follow its length, in four "
            "bytes, the most significant first"
        )
    content = await _in_thread(stream.read, length)
    if len(content) < length:
        raise incomplete
    return content
