"""Another program that does comparable work, run in turns with ours."""

from __future__ import annotations

import asyncio
import re
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_RATE = re.compile(r"([\d.]+) tx/s")
_P50 = re.compile(r"p50 ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """One run's committed transactions per second and median latency in milliseconds."""

    rate: float
    p50_ms: float


async def read_yardstick(
    command: str, clients: int, window: int, size: int, records: int
) -> Reading:
    """Run ``command`` for a shape and read its figures.

    ``{clients}``, ``{window}``, ``{size}`` and ``{records}`` are filled in; it must print
    ``… tx/s p50 …``. Raises RuntimeError if it does not.
    """
    filled = command.format(clients=clients, window=window, size=size, records=records)
    process = await asyncio.create_subprocess_exec(*shlex.split(filled), stdout=-1, stderr=-1)
    out, err = await process.communicate()
    text = out.decode()
    rate, p50 = _RATE.search(text), _P50.search(text)
    if rate is None or p50 is None:
        raise RuntimeError(f"no figures in what {filled!r} printed: {text}{err.decode()}")
    return Reading(float(rate[1]), float(p50[1]))


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return how the medians compare."""
    return statistics.median(ours) / statistics.median(theirs)
