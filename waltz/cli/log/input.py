"""Read the transactions of ``waltz log append`` from a file or standard input. Touches streams.

In the framing ``length``, each record follows its length: four bytes, the most significant first.
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
MAX_RECORD_BYTES = 64 << 20
"""The largest record that the protocol can transfer.

A larger length shows that the input has another framing.
"""


class Framing(StrEnum):
    """How the input is divided into records.

    Each line is a record, or the whole input is one, or each record follows its length.
    """

    LINES = "lines"
    ONE = "one"
    LENGTH = "length"


@contextmanager
def opened(source: Path | None) -> Iterator[BinaryIO]:
    """Open the file, or standard input for None or ``-``."""
    if source is None or str(source) == "-":
        try:
            descriptor = sys.stdin.fileno()
        except OSError:  # Standard input was replaced by an object in memory.
            yield sys.stdin.buffer
            return
        # Not ``sys.stdin.buffer``: Python closes that at the end of the process, and would first
        # wait for the thread that reads from it.
        yield io.BufferedReader(io.FileIO(descriptor, closefd=False))
        return
    with source.open("rb") as file:
        yield file


async def records(stream: BinaryIO, framing: Framing) -> AsyncIterator[bytes]:
    """Yield the records as they arrive.

    Raises Failed if the input ends within a record, or a record is larger than the protocol allows.
    The length of a line is not checked here: the client refuses a line that is too long.
    """
    match framing:
        case Framing.ONE:
            # One byte more than the maximum shows that the input is too large.
            content = await _in_thread(stream.read, MAX_RECORD_BYTES + 1)
            if len(content) > MAX_RECORD_BYTES:
                raise Failed(f"the input exceeds {MAX_RECORD_BYTES >> 20} MiB, the largest record")
            yield content
        case Framing.LINES:
            while line := await _in_thread(stream.readline):
                yield line.removesuffix(b"\n")
        case Framing.LENGTH:
            number = 0
            while head := await _in_thread(stream.read, LENGTH_BYTES):
                yield await _of_length(stream, head, number)
                number += 1


async def _in_thread(read: Callable[..., bytes], *arguments: int) -> bytes:
    """Return what a blocking read returns.

    The thread is a daemon: Ctrl-C ends the process although the thread still waits for input.
    `asyncio.to_thread` would wait for that thread.
    """
    loop = asyncio.get_running_loop()
    content: asyncio.Future[bytes] = loop.create_future()

    def deliver(settle: Callable[[Any], None], outcome: bytes | Exception) -> None:
        if not content.done():
            settle(outcome)

    def work() -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
            try:
                found = read(*arguments)
            except Exception as error:
                loop.call_soon_threadsafe(deliver, content.set_exception, error)
            else:
                loop.call_soon_threadsafe(deliver, content.set_result, found)

    threading.Thread(target=work, name="input", daemon=True).start()
    return await content


async def _of_length(stream: BinaryIO, head: bytes, number: int) -> bytes:
    """Return the next record; ``head`` are the bytes of its length, which were read before.

    ``number`` is the number of records before this one. Raises Failed.
    """
    # Not that the records before it are appended: their appends may be in flight, and fail.
    incomplete = Failed(f"the input ends within record {number}, so this record is not appended")
    if len(head) < LENGTH_BYTES:
        raise incomplete
    length = int.from_bytes(head, "big")
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
