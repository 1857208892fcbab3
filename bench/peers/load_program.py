"""Talk to a load generator that takes commands from its standard input. Starts processes.

Each command is a line, and so is each answer, an object of JSON. The program ends when its input
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.peers.measured import MOST_SECONDS, Measured
from bench.peers.processes import CommandFailed, Servers, end_of


class LoadProgram:
    """A load generator that runs; its messages go to the file ``log``."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def command(self, *words: object) -> dict[str, Any]:
        """Send a command and return its answer. Raises CommandFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join(map(str, words))
        # A program that has ended has closed its input. Then there is no answer, and the error
        # below shows what the program has printed last.
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(f"{line}\n".encode())
            await self._process.stdin.drain()
        answer = await self._process.stdout.readline()
        if not answer:
            raise CommandFailed(f"the load generator ended at {line!r}: {end_of(self._log)}")
        fields: dict[str, Any] = json.loads(answer)
        return fields

    async def append(self, records: int, servers: Servers) -> Measured:
        """Append to what the command ``open`` has opened, and close it. Raises CommandFailed.

        A tenth of the records, but for at most a quarter of `MOST_SECONDS`, is appended first, to
        warm up the peer. These records do not count.
        """
        await self.command("append", records // 10 + 1, MOST_SECONDS / 4)
        before = servers.cpu_seconds()
        result = await self.command("append", records, MOST_SECONDS)
        used = servers.cpu_seconds() - before
        await self.command("close")
        return Measured(**result, server_seconds=used)


@contextlib.asynccontextmanager
async def load_program(*command: str | Path, log: Path) -> AsyncIterator[LoadProgram]:
    """Start a load generator; kill it at the end of the context."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdin=PIPE, stdout=PIPE, stderr=errors
        )
    try:
        yield LoadProgram(process, log)
    finally:
        # It is killed without a delay, because it may wait for its peer for ever.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
