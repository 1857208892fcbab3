"""Write the text of `bench/RESULTS.md` from the measurements of `bench.peers`. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.followers import APPEND_INTERVAL_SECONDS, FollowerRun
from bench.following import SLOW_PAUSE_SECONDS
from bench.peers.measured import MOST_SECONDS, Description, Measured, ReadRun

OURS = "Waltz"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how the peers were measured; ``size`` is the bytes of a record."""

    machine: str
    date: str
    commit: str
    size: int
    rounds: int
    scale: float = 1.0
    """The number of records, divided by that of a usual run."""

    def command(self) -> str:
        """Return the command that repeats the run."""
        if self.scale == 1:
            return "make bench-peers"
        return f"python -m bench.peers --scale {self.scale:g}"


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


@dataclass(frozen=True, slots=True)
class Reads:
    """The rounds of one way of reading at one peer."""

    peer: str
    reader: str
    rounds: tuple[ReadRun, ...]

    def median(self, figure: Callable[[ReadRun], float]) -> float:
        """Return the median of a figure over the rounds."""
        return statistics.median(map(figure, self.rounds))


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured. ``missing`` has the peers that were not measured, and why.

    ``followers`` has the rounds of each number of followers of Waltz.
    """

    peers: Sequence[Description]
    appends: Results
    reads: Sequence[Reads]
    followers: Sequence[Sequence[FollowerRun]]
    missing: Mapping[str, str]


def result_page(environment: Environment, report: Report) -> str:
    """Return the text of the page, in Markdown."""
    parts = [
        "# Waltz beside its alternatives",
        f"Written by `{environment.command()}` on {environment.date}, at commit "
        f"{environment.commit}. Machine: {environment.machine}. It ran the load and all "
        f"replicas of one system at a time. Records of {environment.size} bytes, one log, three "
        "replicas; a record counts when the system has acknowledged it, and each system flushes to "
        "disk before that. "
        f"Medians of {environment.rounds} rounds in turns. Compare the proportions: another "
        "machine gives other values.",
        _peer_table(report.peers),
    ]
    parts += [f"Not measured: **{name}**: {why}." for name, why in sorted(report.missing.items())]
    for locks in (False, True):
        chosen = [series for series in report.appends if series.locks is locks]
        if chosen:
            title = "Each append under one lock" if locks else "Appends without a lock"
            parts += [f"## {title}", _rate_table(chosen)]
            parts += [text for text in (verdict(chosen), _detail_table(chosen)) if text]
    if report.appends:
        parts.append("![Records per second for each shape](results/rates.png)")
    if report.reads:
        parts += _reads_section(environment, report.reads)
    if report.followers:
        parts += _followers_section(report.followers)
    parts += [
        "## How to repeat it",
        "`make bench-peers`, on a machine that does nothing else. The first run also fetches and "
        "builds what is missing, into `build/peers`. Each system comes from the PATH if it is "
        "there. Otherwise NATS and etcd are built from their Go modules (Go 1.26), Maven fetches "
        "Kafka (Java 17, with its compiler), and PostgreSQL comes from Debian's package. A system "
        "that cannot be had is left out. `python -m bench.peers --help` has the options.",
        "What this does not show: a network (all is loopback), several disks (all replicas share "
        f"one), and more cores than those of the machine (servers and load share them). A run of "
        f"Kafka and etcd ends after {MOST_SECONDS:.0f} seconds, even if it has fewer records than "
        "those of the other systems. Kafka gets load for a minute before its first run, and gets "
        "faster for some minutes more.",
    ]
    return "\n\n".join(parts) + "\n"


def _reads_section(environment: Environment, reads: Sequence[Reads]) -> list[str]:
    """Return the section about reading a log from its start."""
    rows = [
        (
            each.peer,
            each.reader,
            f"{each.median(lambda r: r.rate):,.0f}",
            f"{each.median(lambda r: r.cpu_us):.2f}",
            f"{min(r.rate for r in each.rounds):,.0f} to {max(r.rate for r in each.rounds):,.0f}",
        )
        for each in reads
    ]
    most = max(run.records for each in reads for run in each.rounds)
    parts = [
        "## Reading a log",
        f"One consumer reads {most:,} records of {environment.size} bytes from the start of the "
        "log, shortly after they were written, so from memory. Each reads everything once before "
        "the run that counts. Each consumer is the usual one of its system, in the language named; "
        "psql throws the rows away. etcd is not read: it keeps keys, not a log.",
        _table(("System", "Read by", "Rows/s", "CPU µs per row", "Rates"), rows),
    ]
    return [*parts, *reading_verdict(reads), "![Rows per second](results/reads.png)"]


def reading_verdict(reads: Sequence[Reads]) -> list[str]:
    """Return a paragraph that compares our best reader with each reader of the other systems.

    The list has this paragraph alone. It is empty if there is no reader of ours, or none of another
    system.
    """
    rates = {(each.peer, each.reader): each.median(lambda r: r.rate) for each in reads}
    ours = {reader: rate for (peer, reader), rate in rates.items() if peer == OURS}
    if not ours or len(ours) == len(rates):
        return []
    best = max(ours, key=lambda reader: ours[reader])
    lines = []
    for (peer, reader), rate in rates.items():
        if peer == OURS:
            continue
        ratio = ours[best] / rate
        if ratio >= 1:
            lines.append(
                f"- {OURS} ({best}) is ahead of {peer} ({reader}), with {ratio:.2f} × its rate."
            )
        else:
            lines.append(
                f"- **{peer} is ahead** ({reader}); {OURS} ({best}) has {ratio:.2f} × its rate."
            )
    return ["\n".join(lines)]


def _followers_section(followers: Sequence[Sequence[FollowerRun]]) -> list[str]:
    """Return the section about the latency of deliveries to followers."""
    rows = []
    for rounds in followers:
        figures: tuple[Callable[[FollowerRun], float], ...] = (
            lambda r: r.delivered_p50_ms,
            lambda r: r.delivered_p99_ms,
            lambda r: r.acknowledged_p50_ms,
            lambda r: r.acknowledged_p99_ms,
        )
        medians = [f"{statistics.median(map(figure, rounds)):.1f}" for figure in figures]
        rows.append((str(rounds[0].followers), str(rounds[0].slow), *medians))
    head = ("Followers", "Slow ones beside them", "Delivered p50 ms", "p99 ms")
    return [
        f"## Followers of {OURS}",
        "From the call of an append until a follower has the record (*delivered*), and until the "
        f"appending client has its answer (*acknowledged*). One client begins an append every "
        f"{APPEND_INTERVAL_SECONDS * 1000:.0f} ms; each follower streams the log with its data, "
        "over a connection of its own. A slow follower reads from the start of the log and pauses "
        f"{SLOW_PAUSE_SECONDS:.0f} s after each batch of up to 1,000 records. All followers of a "
        "kind are one process in Python, on the same cores.",
        _table((*head, "Acknowledged p50 ms", "p99 ms"), rows),
    ]


def verdict(results: Results) -> str:
    """Return a line for each shape: how our rate compares with that of the best other peer.

    A shape that only we have, or that we lack, has no line.
    """
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
    rows = [(p.name, p.version, p.durability, p.lock or "none") for p in peers]
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
