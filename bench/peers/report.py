"""Make `bench/RESULTS.md` of the measurements of a run of `bench.peers`. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.measured import Description, Measured

OURS = "Waltz"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how the peers were measured."""

    machine: str
    date: str
    commit: str
    size: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Series:
    """The rounds of one shape at one peer."""

    shape: str
    locks: bool
    peer: str
    rounds: tuple[Measured, ...]

    def median(self, figure: Callable[[Measured], float]) -> float:
        """Return the median of a figure over the rounds."""
        return statistics.median(map(figure, self.rounds))


Results = Sequence[Series]


def result_page(
    environment: Environment,
    peers: Sequence[Description],
    results: Results,
    missing: Mapping[str, str],
) -> str:
    """Return the page. ``missing`` has the peers that were not measured, and why."""
    parts = [
        "# Waltz beside its alternatives",
        f"Written by `make bench-peers` on {environment.date}, at commit {environment.commit}. "
        f"Machine: {environment.machine}. It ran the load and all replicas of one system at a "
        f"time. Records of {environment.size} bytes, one log, three replicas; a record counts "
        "when the system has acknowledged it, and each system flushes to disk before that. "
        f"Medians of {environment.rounds} rounds in turns. Compare the proportions: another "
        "machine gives other values.",
        _peer_table(peers),
    ]
    parts += [f"Not measured: **{name}**: {why}." for name, why in sorted(missing.items())]
    for locks in (False, True):
        chosen = [series for series in results if series.locks is locks]
        if chosen:
            title = "Each append under one lock" if locks else "Appends without a lock"
            parts += [f"## {title}", _rate_table(chosen)]
            parts += [text for text in (verdict(chosen), _detail_table(chosen)) if text]
    parts += [
        "![Records per second for each shape](results/rates.png)",
        "## How to repeat it",
        "`make bench-peers`, on a machine that does nothing else. PostgreSQL comes from the PATH "
        "or from Debian's package, NATS from the PATH or, with Go, from its modules. "
        "`python -m bench.peers --help` has the options.",
        "What this does not show: a network (all is loopback), several disks (all replicas share "
        "one), and more than two cores (servers and load share them).",
    ]
    return "\n\n".join(parts) + "\n"


def verdict(results: Results) -> str:
    """Return a sentence for each shape: how our rate compares with the best other peer."""
    lines = []
    for shape in _shapes(results):
        rates = {s.peer: s.median(lambda m: m.rate) for s in results if s.shape == shape}
        ours = rates.pop(OURS, None)
        if ours is None or not rates:
            continue
        best = max(rates, key=lambda peer: rates[peer])
        ratio = ours / rates[best]
        if ratio >= 1:
            lines.append(f"- {shape}: {OURS} is ahead, with {ratio:.2f} × the rate of {best}.")
        else:
            lines.append(f"- {shape}: **{best} is ahead**; {OURS} has {ratio:.2f} × its rate.")
    return "\n".join(lines)


def _peer_table(peers: Sequence[Description]) -> str:
    rows = [(p.name, p.version, p.durability, p.lock) for p in peers]
    return _table(("System", "Version", "On disk at the acknowledgement", "Lock"), rows)


def _rate_table(results: Results) -> str:
    """Return the rates, one row for each shape and one column for each peer."""
    peers = list(dict.fromkeys(series.peer for series in results))
    rows = []
    for shape in _shapes(results):
        by_peer = {series.peer: series for series in results if series.shape == shape}
        row = [shape]
        for peer in peers:
            series = by_peer.get(peer)
            row.append("-" if series is None else f"{series.median(lambda m: m.rate):,.0f}")
        rows.append(row)
    return _table(("Clients × open appends", *(f"{peer}, records/s" for peer in peers)), rows)


def _detail_table(results: Results) -> str:
    """Return latencies, CPU time, and the spread of the rates."""
    rows = [
        (
            series.shape,
            series.peer,
            f"{series.median(lambda m: m.p50_ms):.2f}",
            f"{series.median(lambda m: m.p99_ms):.2f}",
            f"{series.median(lambda m: m.cpu_us):.0f}",
            f"{min(m.rate for m in series.rounds):,.0f} to "
            f"{max(m.rate for m in series.rounds):,.0f}",
        )
        for series in results
    ]
    head = ("Clients × open appends", "System", "p50 ms", "p99 ms", "CPU µs per record", "Rates")
    return _table(head, rows)


def _shapes(results: Results) -> list[str]:
    return list(dict.fromkeys(series.shape for series in results))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
