"""Run a yardstick: another program that reads as many records as Spark does, or follows a log.

The yardstick prints lines of JSON. A program that reads prints objects with ``reader``, which names
the kind of reading, and ``records_per_s``, which is one number or a list of numbers. A program that
follows prints one object with ``p50_ms`` and ``p99_ms``. Other lines are ignored. Starts processes.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

_LONGEST_RUN_SECONDS = 1800.0
"""A yardstick that has not ended after this time is killed, and the measurement fails."""


def rates(command: str) -> dict[str, list[float]]:
    """Run the yardstick ``command``; return the records per second of each of its readers.

    An object with ``"kind": "summary"`` summarizes other objects, and is ignored if there are
    other objects. Raises RuntimeError if the output has no ``records_per_s``.
    """
    runs: dict[str, list[float]] = {}
    summaries: dict[str, list[float]] = {}
    for line in _lines(command):
        rate = line.get("records_per_s")
        if rate is not None:
            by_reader = summaries if line.get("kind") == "summary" else runs
            numbers = rate if isinstance(rate, list) else [rate]
            by_reader.setdefault(str(line.get("reader", "")), []).extend(map(float, numbers))
    if not (runs or summaries):
        raise RuntimeError(f"the output of {command!r} has no records_per_s")
    return runs or summaries


def latency(command: str) -> tuple[float, float]:
    """Run the yardstick ``command``; return its median latency and 99th percentile in ms.

    Raises RuntimeError if the output has no such figures.
    """
    for line in _lines(command):
        if "p50_ms" in line and "p99_ms" in line:
            return float(line["p50_ms"]), float(line["p99_ms"])
    raise RuntimeError(f"the output of {command!r} has no p50_ms and p99_ms")


def _lines(command: str) -> Iterator[dict[str, Any]]:
    """Run ``command`` and yield the objects that it prints. Raises subprocess.SubprocessError."""
    completed = subprocess.run(
        shlex.split(command),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_LONGEST_RUN_SECONDS,
    )
    for line in completed.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
