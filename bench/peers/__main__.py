"""Measure Waltz and its alternatives in turns, and write the results. Starts processes.

Runs as `python -m bench.peers`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.peers.measured import RECORDS, Description, Measured, Peer, PeerLoad, PeerMissing
from bench.peers.nats import Nats
from bench.peers.plots import draw_rates
from bench.peers.postgresql import PostgreSql
from bench.peers.processes import CommandFailed, run_command
from bench.peers.report import Environment, Series, result_page
from bench.peers.waltz_cluster import Waltz

PEERS: Mapping[str, Peer] = {"waltz": Waltz(), "nats": Nats(), "postgresql": PostgreSql()}
_RESULTS = Path(__file__).parents[1] / "RESULTS.md"

console = Console(width=120)


async def _measure(
    peers: Mapping[str, Peer], rounds: int, size: int, scale: float
) -> tuple[list[Description], list[Series], dict[str, str]]:
    """Measure all peers in turns.

    Return the descriptions of the measured peers, the results, and why each other peer is missing.
    """
    described: dict[str, Description] = {}
    missing: dict[str, str] = {}
    for key, peer in peers.items():
        try:
            described[key] = await peer.describe()
        except PeerMissing as why:
            missing[key] = str(why)
            console.print(f"{key} is not measured: {why}")
    loads = [
        PeerLoad(clients, window, size, max(clients * window, int(records * scale)), locks)
        for locks in (False, True)
        for (clients, window), records in RECORDS.items()
    ]
    measured: dict[tuple[PeerLoad, str], list[Measured]] = {
        (load, key): [] for load in loads for key in described
    }
    for number in range(rounds):
        # Only the peer that is measured runs: the others would take CPU time even when idle.
        for key, description in described.items():
            async with peers[key].start() as running:
                for load in loads:
                    result = await running.append(load)
                    measured[load, key].append(result)
                    console.print(
                        f"round {number + 1} of {rounds}, {description.name}, {load.shape}, "
                        f"{'one lock' if load.locks else 'no lock'}: {result.rate:,.0f} records/s, "
                        f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms, "
                        f"CPU {result.cpu_us:.0f} µs per record"
                    )
    series = [
        Series(load.shape, load.locks, described[key].name, tuple(results))
        for (load, key), results in measured.items()
    ]
    return list(described.values()), series, missing


def _machine() -> str:
    """Describe this machine."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{os.cpu_count()} cores ({names[0] if names else 'unknown'}), {memory:.0f} GiB"


async def _environment(size: int, rounds: int) -> Environment:
    """Describe this machine and this checkout."""
    try:
        commit = (await run_command("git", "rev-parse", "--short", "HEAD")).strip()
    except (CommandFailed, OSError):
        commit = "unknown"
    return Environment(_machine(), f"{datetime.now(UTC):%Y-%m-%d}", commit, size, rounds)


def _command(
    peer: Annotated[
        list[str] | None,
        typer.Option(help=f"Measure only this one of {', '.join(PEERS)}. Repeatable."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="The number of rounds in turns.")] = 3,
    size: Annotated[int, typer.Option(min=1, help="The bytes of a record.")] = 512,
    scale: Annotated[float, typer.Option(help="Multiply the number of records by this.")] = 1.0,
    out: Annotated[Path, typer.Option(help="The file to write the results to.")] = _RESULTS,
) -> None:
    """Measure Waltz, NATS JetStream and PostgreSQL in turns, each with three durable replicas.

    A run with all peers and three rounds takes about ten minutes. Do nothing else on the machine.
    """
    unknown = set(peer or ()) - set(PEERS)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: the peers are {', '.join(PEERS)}")
    chosen = {key: each for key, each in PEERS.items() if not peer or key in peer}
    described, series, missing = asyncio.run(_measure(chosen, rounds, size, scale))
    environment = asyncio.run(_environment(size, rounds))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(result_page(environment, described, series, missing))
    draw_rates(environment, series, out.parent / "results" / "rates.png")
    console.print(f"written: {out}")


if __name__ == "__main__":
    typer.run(_command)
