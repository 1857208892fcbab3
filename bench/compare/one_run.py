"""Measure a few shapes once, on a cluster of this tree, and print the runs as JSON.

`bench.compare` runs this program in each of the two trees: `python -m bench.compare.one_run SIZE
SCALE CLIENTSxWINDOW …`. Starts processes, touches the network and the disk.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

from bench.compare.statistics import Run
from bench.peers.measured import RECORDS, PeerLoad
from bench.peers.waltz_cluster import Waltz


async def _main(size: int, scale: float, shapes: list[str]) -> dict[str, Run]:
    """Measure each shape once; ``scale`` multiplies the usual number of records."""
    runs: dict[str, Run] = {}
    async with Waltz().start() as cluster:
        for shape in shapes:
            clients, window = map(int, shape.split("x"))
            records = int(RECORDS[clients, window] * scale)
            measured = await cluster.append(PeerLoad(clients, window, size, records, locks=True))
            runs[shape] = Run(measured.rate, measured.cpu_us, measured.p50_ms)
    return runs


if __name__ == "__main__":
    measured_runs = asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
    print(json.dumps({shape: asdict(run) for shape, run in measured_runs.items()}))
