"""``waltz log append`` that is interrupted shows ids, and which appends are in doubt."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from waltz.cli.log.appending import append_all
from waltz.cli.output import Format
from waltz.client import AppendUncertain, ClientClosed
from waltz.protocol import ReqId


@pytest.mark.parametrize(
    ("in_flight", "input_ends"),
    [
        pytest.param(8, False, id="reading the input"),
        pytest.param(3, False, id="waiting for the oldest append"),
        pytest.param(8, True, id="waiting for all appends"),
    ],
)
async def test_interrupted_append_shows_ids_and_the_request_ids_of_appends_in_doubt(
    capsys: pytest.CaptureFixture[str], in_flight: int, input_ends: bool
) -> None:
    """The first append is in doubt, the second is in the log, and the third was not sent."""
    all_called, closed = asyncio.Event(), asyncio.Event()

    async def append(content: bytes) -> int:
        if content == b"b":
            return 18
        if content == b"c":
            all_called.set()
        await closed.wait()
        if content == b"a":
            raise AppendUncertain(0, ReqId(17, 3, 0, 42), "the client is closed")
        raise ClientClosed

    async def contents() -> AsyncIterator[bytes]:
        for content in (b"a", b"b", b"c"):
            yield content
        if not input_ends:
            await asyncio.Event().wait()

    async def close() -> None:
        closed.set()

    verb = append_all(0, append, contents(), in_flight, Format.TABLE, close)
    task = asyncio.create_task(verb)
    await all_called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    printed = capsys.readouterr()
    assert printed.out == "18\n"
    assert "find its outcome: waltz log find 17:3:0:42\n" in printed.err
    assert "closed" not in printed.err
    assert "appends that are not in the log, and never will be: 1\n" in printed.err


_APPEND_AN_ARGUMENT = """
import asyncio, signal
from contextlib import asynccontextmanager
from waltz.cli.app import app
from waltz.cli.log import commands
from waltz.client import AppendUncertain
from waltz.protocol import ReqId

class Client:
    def __init__(self):
        self.closed = asyncio.Event()

    async def append(self, *_, **__):
        signal.raise_signal(signal.SIGINT)
        await self.closed.wait()
        raise AppendUncertain(0, ReqId(17, 3, 0, 42), "the client is closed")

    async def close(self):
        self.closed.set()

@asynccontextmanager
async def open_client(*_):
    yield Client()

commands.open_client = open_client
signal.signal(signal.SIGINT, signal.default_int_handler)
app(["log", "append", "0", "data", "-z", "z:1"])
"""


def test_interrupted_append_of_an_argument_shows_its_request_id() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _APPEND_AN_ARGUMENT],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert result.returncode in (130, -signal.SIGINT), result.stderr
    assert "waltz log find 17:3:0:42 --zookeeper z:1" in result.stderr
