"""Measure the peers in turns, and then the followers of Waltz. Starts processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console

from bench.cluster import measured_cluster
from bench.followers import APPENDS, FOLLOWERS, OLD_RECORDS, SLOW, FollowerRun, measure_followers
from bench.peers.measured import (
    READ_RECORDS,
    RECORDS,
    Description,
    Measured,
    Peer,
    PeerLoad,
    PeerMissing,
    ReadRun,
    RunningPeer,
)
from bench.peers.processes import CommandFailed
from bench.peers.report import Reads, Report, Series

console = Console(width=120)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: the rounds, the bytes of a record (``size``), and ``scale``.

    ``scale`` multiplies the usual numbers of records and appends.
    """

    rounds: int
    size: int
    scale: float

    def scaled(self, count: int) -> int:
        """Return ``count`` times the scale, at least 1."""
        return max(1, int(count * self.scale))


@dataclass(slots=True)
class _Results:
    """The runs of one peer."""

    appends: dict[PeerLoad, list[Measured]] = field(default_factory=dict)
    reads: dict[str, list[ReadRun]] = field(default_factory=dict)


async def measure_peers(
    peers: Mapping[str, Peer], extent: Extent, *, appends: bool, reads: bool, followers: bool
) -> Report:
    """Measure all peers in turns, except those whose programs are missing and cannot be built.

    ``appends``, ``reads`` and ``followers`` are whether these parts are measured. The followers are
    those of Waltz, and come last. A peer that fails is left out of the report, with the reason.
    """
    described: dict[str, Description] = {}
    missing: dict[str, str] = {}
    for key, peer in peers.items():
        try:
            described[key] = await peer.describe()
        except PeerMissing as why:
            missing[key] = str(why)
            console.print(f"{key} is not measured: {why}")
    results = {key: _Results() for key in described}
    for number in range(extent.rounds if appends or reads else 0):
        # Only the peer that is measured runs: the others would take CPU time even when idle.
        for key in list(described):
            console.print(f"round {number + 1} of {extent.rounds}, {described[key].name}")
            try:
                async with peers[key].start() as running:
                    await running.warm_up(extent.scale)
                    if appends:
                        locks = described[key].lock is not None
                        await _append(running, extent, results[key], with_locks=locks)
                    if reads:
                        await _read(running, extent, results[key])
            except CommandFailed as failure:
                # A system that does not work here must not end the measurement of the others.
                console.print(failure, markup=False)
                missing[key] = f"it failed in round {number + 1}"
                del described[key], results[key]
    return Report(
        peers=list(described.values()),
        appends=_series(described, results),
        reads=[
            Reads(described[key].name, reader, tuple(runs))
            for key, peer_results in results.items()
            for reader, runs in peer_results.reads.items()
        ],
        followers=await _follow(extent) if followers else [],
        missing=missing,
    )


def _series(described: Mapping[str, Description], results: Mapping[str, _Results]) -> list[Series]:
    """Return the series of appends, sorted by shape and then by peer."""
    loads = dict.fromkeys(
        load for peer_results in results.values() for load in peer_results.appends
    )
    return [
        Series(load.shape, load.locks, described[key].name, tuple(peer_results.appends[load]))
        for load in loads
        for key, peer_results in results.items()
        if load in peer_results.appends
    ]


async def _append(
    running: RunningPeer, extent: Extent, results: _Results, *, with_locks: bool
) -> None:
    """Measure all shapes without locks, and then with locks if ``with_locks`` is set."""
    for locks in (False, True) if with_locks else (False,):
        for (clients, window), count in RECORDS.items():
            # Each client fills its window at least once, also with a small scale.
            records = max(clients * window, extent.scaled(count))
            load = PeerLoad(clients, window, extent.size, records, locks)
            result = await running.append(load)
            results.appends.setdefault(load, []).append(result)
            console.print(
                f"  {load.shape}, {'one lock' if locks else 'no lock'}: "
                f"{result.rate:,.0f} records/s, p50 {result.p50_ms:.2f} ms, "
                f"p99 {result.p99_ms:.2f} ms, CPU {result.cpu_us:.0f} µs per record"
            )


async def _read(running: RunningPeer, extent: Extent, results: _Results) -> None:
    """Measure each way of reading."""
    for reader, run in (await running.read(extent.size, extent.scaled(READ_RECORDS))).items():
        results.reads.setdefault(reader, []).append(run)
        console.print(
            f"  read by {reader}: {run.rate:,.0f} records/s, CPU {run.cpu_us:.2f} µs per record"
        )


async def _follow(extent: Extent) -> list[list[FollowerRun]]:
    """Measure the followers of Waltz; return the rounds of each number of followers."""
    shapes = [(followers, slow) for slow in (0, SLOW) for followers in FOLLOWERS]
    runs: dict[tuple[int, int], list[FollowerRun]] = {shape: [] for shape in shapes}
    async with measured_cluster() as cluster:
        await cluster.put_load(
            clients=4, window=100, size=extent.size, records=extent.scaled(OLD_RECORDS), locks=False
        )
        for number in range(extent.rounds):
            console.print(f"round {number + 1} of {extent.rounds}, followers of Waltz")
            for followers, slow in shapes:
                appends = extent.scaled(APPENDS)
                run = await measure_followers(cluster, followers, slow, extent.size, appends)
                runs[followers, slow].append(run)
                console.print(
                    f"  {followers} beside {slow} slow ones: delivered "
                    f"p50 {run.delivered_p50_ms:.1f} ms, p99 {run.delivered_p99_ms:.1f} ms"
                )
    return list(runs.values())
