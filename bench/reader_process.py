"""A process of readers beside a measurement, so that both do not share one event loop.

The process prints ``ready`` when it can begin, and then what its measurement needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def reader_process(module: str, *arguments: str) -> AsyncIterator[Process]:
    """Run ``python -m module``. The context begins when the process is ready.

    At the end of the context, close the standard input of the process and wait for its end. Raises
    RuntimeError if the process fails.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 26,  # A list of latencies is one line.
    )
    try:
        ready = await next_line(process)
        assert ready == b"ready\n", f"the readers printed {ready!r}"
        yield process
    except BaseException:
        # Readers that wait for more records would wait for ever.
        process.kill()
        await process.wait()
        raise
    assert process.stdin is not None
    process.stdin.close()
    if await process.wait():
        raise RuntimeError(f"the readers ended with {process.returncode}")


async def next_line(process: Process) -> bytes:
    """Return the next line that the process prints; fail if it has ended."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the readers ended before their results")
    return line
