"""Run a yardstick: another program that does comparable work. Starts processes.

Its figures, measured in turns with those of Waltz on the same machine, give a ratio. The ratio
depends less on the machine than the rates.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import statistics
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import dataclass

_RATE = re.compile(r"([\d.]+) tx/s")
_P50 = re.compile(r"p50 ([\d.]+)")
_LONGEST_RUN_SECONDS = 300.0
_END_SECONDS = 10.0
"""How long a yardstick that was terminated may take to end, until it is killed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one run: ``rate`` in transactions per second, and the median latency."""

    rate: float
    p50_ms: float


async def read_yardstick(
    command: str, clients: int, window: int, size: int, records: int
) -> Reading:
    """Run the yardstick ``command`` for one shape, and return the figures that it prints.

    ``{clients}``, ``{window}``, ``{size}`` and ``{records}`` in the command are replaced. The
    command must print a text such as ``900 tx/s p50 4.1``, with the latency in milliseconds. Raises
    RuntimeError if the text is missing, or if the command does not end within five minutes.
    """
    command = command.format(clients=clients, window=window, size=size, records=records)
    process = await asyncio.create_subprocess_exec(*shlex.split(command), stdout=PIPE, stderr=PIPE)
    try:
        out, err = await asyncio.wait_for(process.communicate(), _LONGEST_RUN_SECONDS)
    except TimeoutError:
        await _end(process)
        out, err = b"", b"it did not end within five minutes"
    text = out.decode()
    rate, p50 = _RATE.search(text), _P50.search(text)
    if rate is None or p50 is None:
        raise RuntimeError(
            f"the output of {command!r} has no 'N tx/s' and 'p50 N': {text}{err.decode()}"
        )
    return Reading(float(rate[1]), float(p50[1]))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate ``process`` and wait for its end, so that it does not slow the next measurement."""
    # The process may have ended while a child of it keeps the output open.
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of ``ours`` divided by the median of ``theirs``."""
    return statistics.median(ours) / statistics.median(theirs)
