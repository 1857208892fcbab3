"""Run a process of readers beside a measurement, so that both do not share one event loop.

The process prints the line ``ready`` when it can begin, and then lines with its results. Starts
processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def reader_process(module: str, *arguments: str) -> AsyncIterator[Process]:
    """Run ``python -m module``; yield the process when it is ready.

    At the end of the context, its standard input is closed, and its end is awaited. Raises
    RuntimeError if the process fails.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 26,  # The longest line in bytes: a list of all latencies is one line.
    )
    try:
        ready = await next_line(process)
        assert ready == b"ready\n", f"the readers printed {ready!r}"
        yield process
    except BaseException:
        # Readers do not end by themselves while they wait for records that never come.
        process.kill()
        await process.wait()
        raise
    assert process.stdin is not None
    process.stdin.close()
    if await process.wait():
        raise RuntimeError(f"the readers ended with {process.returncode}")


async def next_line(process: Process) -> bytes:
    """Return the next line that the process prints. Raises RuntimeError if it has ended."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the readers ended before their results")
    return line
