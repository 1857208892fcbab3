"""Measure Waltz and its alternatives in turns, and write the results. Starts processes.

Runs as `python -m bench.peers`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.peers.etcd import Etcd
from bench.peers.kafka import Kafka
from bench.peers.measured import Peer
from bench.peers.measuring import Extent, console, measure_peers
from bench.peers.nats import Nats
from bench.peers.plots import draw_rates, draw_reads
from bench.peers.postgresql import PostgreSql
from bench.peers.processes import CommandFailed, run_command
from bench.peers.report import Environment, result_page
from bench.peers.waltz_cluster import Waltz

PEERS: Mapping[str, Peer] = {
    "waltz": Waltz(),
    "nats": Nats(),
    "kafka": Kafka(),
    "etcd": Etcd(),
    "postgresql": PostgreSql(),
}
_RESULTS = Path(__file__).parents[1] / "RESULTS.md"


class Part(StrEnum):
    """A part of the report."""

    APPENDS = "appends"
    READS = "reads"
    FOLLOWERS = "followers"


def _machine() -> str:
    """Describe this machine."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} cores ({names[0] if names else 'unknown'}), {memory:.0f} GiB"


async def _environment(extent: Extent) -> Environment:
    """Describe this machine and this checkout."""
    try:
        commit = (await run_command("git", "rev-parse", "--short", "HEAD")).strip()
    except (CommandFailed, OSError):
        commit = "unknown"
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return Environment(_machine(), today, commit, extent.size, extent.rounds, extent.scale)


def _command(
    peer: Annotated[
        list[str] | None,
        typer.Option(help=f"Measure only this one of {', '.join(PEERS)}. Repeatable."),
    ] = None,
    part: Annotated[
        list[Part] | None, typer.Option(help="Measure only this part. Repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="The number of rounds in turns.")] = 3,
    size: Annotated[
        int, typer.Option(min=8, help="The bytes of a record; the time of an append takes 8.")
    ] = 512,
    scale: Annotated[float, typer.Option(help="Multiply the number of records by this.")] = 1.0,
    out: Annotated[Path, typer.Option(help="The file to write the results to.")] = _RESULTS,
) -> None:
    """Measure Waltz and its alternatives in turns, each with three durable replicas.

    A run with all peers and three rounds takes about 25 minutes. The first one takes some more, to
    fetch and build what is missing. Do nothing else on the machine.
    """
    unknown = set(peer or ()) - set(PEERS)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: the peers are {', '.join(PEERS)}")
    chosen = {key: each for key, each in PEERS.items() if not peer or key in peer}
    parts = set(part or Part)
    extent = Extent(rounds, size, scale)
    measuring = measure_peers(
        chosen,
        extent,
        appends=Part.APPENDS in parts,
        reads=Part.READS in parts,
        followers=Part.FOLLOWERS in parts and "waltz" in chosen,
    )
    # SIGTERM raises an exception as Ctrl-C does, so that the started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report = asyncio.run(measuring)
    environment = asyncio.run(_environment(extent))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(result_page(environment, report))
    pictures = out.parent / "results"
    if report.appends:
        draw_rates(environment, report.appends, pictures / "rates.png")
    if report.reads:
        draw_reads(environment, report.reads, pictures / "reads.png")
    console.print(f"written: {out}")


if __name__ == "__main__":
    typer.run(_command)
