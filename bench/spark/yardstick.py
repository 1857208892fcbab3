"""Another program that reads as much with Spark, or follows as quickly. Starts processes.

It prints JSON lines. Of reading: objects with ``reader``, what it read and how, and
``records_per_s``, a number or three (smallest, median, largest). Of following: one object with
``p50_ms`` and ``p99_ms``. Other lines are passed over.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any


def rates(command: str) -> dict[str, list[float]]:
    """Run ``command``; return the rows per second of each of its readers.

    What it prints with "kind": "summary" sums up other lines, and counts only without them. Raises
    RuntimeError if there is nothing that counts.
    """
    runs: dict[str, list[float]] = {}
    summaries: dict[str, list[float]] = {}
    for line in _lines(command):
        rate = line.get("records_per_s")
        if rate is not None:
            found = summaries if line.get("kind") == "summary" else runs
            numbers = rate if isinstance(rate, list) else [rate]
            found.setdefault(str(line.get("reader", "")), []).extend(map(float, numbers))
    if not (runs or summaries):
        raise RuntimeError(f"no records_per_s in what {command!r} printed")
    return runs or summaries


def latency(command: str) -> tuple[float, float]:
    """Run ``command``; return its median and 99th percentile in ms. Raises RuntimeError."""
    for line in _lines(command):
        if "p50_ms" in line and "p99_ms" in line:
            return float(line["p50_ms"]), float(line["p99_ms"])
    raise RuntimeError(f"no p50_ms and p99_ms in what {command!r} printed")


def _lines(command: str) -> Iterator[dict[str, Any]]:
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
