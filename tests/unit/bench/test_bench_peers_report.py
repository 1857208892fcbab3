"""The page of results says who is ahead, and what was not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.followers import FollowerRun, percentile_ms
from bench.peers.measured import Description, Measured, ReadRun
from bench.peers.report import (
    Environment,
    Reads,
    Report,
    Series,
    reading_verdict,
    result_page,
    verdict,
)

ENVIRONMENT = Environment("2 cores", "2026-01-02", "abc1234", 512, 3)
PEERS = [
    Description("Waltz", "0.1.0", "2 of 3 storages", "one write lock"),
    Description("NATS JetStream", "v2.12.2", "2 of 3 servers", "the last sequence"),
    Description("Kafka", "4.3.1", "all replicas", None),
]


def series(peer: str, *rates: float, shape: str = "8 x 5", locks: bool = False) -> Series:
    rounds = tuple(
        Measured(
            seconds=10.0,
            records=int(10 * rate),
            p50_ms=1.5,
            p99_ms=9.25,
            client_seconds=2.0,
            server_seconds=3.0,
        )
        for rate in rates
    )
    return Series(shape, locks, peer, rounds)


def reads(peer: str, reader: str, *rates: float) -> Reads:
    return Reads(
        peer,
        reader,
        tuple(
            ReadRun(seconds=2.0, records=int(2 * rate), client_seconds=0.5, server_seconds=1.5)
            for rate in rates
        ),
    )


def report(
    *appends: Series,
    reads: tuple[Reads, ...] = (),
    followers: tuple[tuple[FollowerRun, ...], ...] = (),
    missing: dict[str, str] | None = None,
) -> Report:
    return Report(PEERS, appends, reads, followers, missing or {})


def test_measured_run_has_its_rate_and_cpu_time_per_record() -> None:
    run = Measured(
        seconds=2.0, records=1000, p50_ms=1.0, p99_ms=2.0, client_seconds=0.01, server_seconds=0.03
    )
    assert run.rate == 500.0
    assert run.cpu_us == pytest.approx(40.0)


def test_read_run_has_its_rate_and_cpu_time_per_record() -> None:
    run = ReadRun(seconds=2.0, records=1000, client_seconds=0.01, server_seconds=0.03)
    assert run.rate == 500.0
    assert run.cpu_us == pytest.approx(40.0)


def test_verdict_with_a_faster_peer_says_that_it_is_ahead() -> None:
    results = [series("Waltz", 100, 50, 900), series("NATS JetStream", 200)]
    assert verdict(results) == "- 8 x 5: **NATS JetStream is ahead**; Waltz has 0.50 × its rate."


def test_verdict_compares_medians_with_the_best_other_peer() -> None:
    results = [series("Waltz", 300), series("NATS JetStream", 200), series("PostgreSQL", 10)]
    assert verdict(results) == ("- 8 x 5: Waltz is ahead, with 1.50 × the rate of NATS JetStream.")


def test_verdict_without_another_peer_is_empty() -> None:
    assert verdict([series("Waltz", 300)]) == ""


def test_reading_verdict_compares_the_best_of_our_readers_with_each_other_one() -> None:
    results = [
        reads("Waltz", "client.stream", 400),
        reads("Waltz", "client.batches", 800, 600, 100),
        reads("Kafka", "consumer", 300),
        reads("PostgreSQL", "COPY", 1200),
    ]
    assert reading_verdict(results) == [
        "- Waltz (client.batches) is ahead of Kafka (consumer), with 2.00 × its rate.\n"
        "- **PostgreSQL is ahead** (COPY); Waltz (client.batches) has 0.50 × its rate."
    ]


@pytest.mark.parametrize("peer", ["Waltz", "Kafka"])
def test_reading_verdict_with_one_side_only_is_empty(peer: str) -> None:
    assert reading_verdict([reads(peer, "consumer", 300)]) == []


def test_page_has_versions_durability_rates_and_missing_peers() -> None:
    page = result_page(
        ENVIRONMENT,
        report(
            series("Waltz", 1500),
            series("NATS JetStream", 1000, locks=True),
            missing={"postgresql": "install it"},
        ),
    )
    assert "| Waltz | 0.1.0 | 2 of 3 storages | one write lock |" in page
    assert "| Kafka | 4.3.1 | all replicas | none |" in page
    assert "| 8 x 5 | 1,500 |" in page
    assert "| 8 x 5 | NATS JetStream | 1.50 | 9.25 | 500 | 1,000 to 1,000 |" in page
    assert "Not measured: **postgresql**: install it." in page
    assert "abc1234" in page


def test_page_with_reads_has_medians_cpu_times_and_spread() -> None:
    page = result_page(ENVIRONMENT, report(reads=(reads("Kafka", "consumer", 500, 250, 1000),)))
    assert "| Kafka | consumer | 500 | 2000.00 | 250 to 1,000 |" in page
    assert "results/reads.png" in page
    assert "results/rates.png" not in page


def test_page_with_followers_has_medians_of_their_latencies() -> None:
    rounds = tuple(FollowerRun(10, 64, p50, 9.5, 1.25, 2.5) for p50 in (7.0, 3.0, 4.0))
    page = result_page(ENVIRONMENT, report(followers=(rounds,)))
    assert "| 10 | 64 | 4.0 | 9.5 | 1.2 | 2.5 |" in page


def test_page_of_one_part_has_no_section_of_another() -> None:
    page = result_page(ENVIRONMENT, report(series("Waltz", 1500)))
    assert "## Reading" not in page
    assert "## Followers" not in page


@pytest.mark.parametrize(("percent", "expected"), [(0, 1000.0), (50, 3000.0), (99, 4000.0)])
def test_percentile_of_unsorted_times_is_in_milliseconds(percent: int, expected: float) -> None:
    assert percentile_ms([3.0, 1.0, 4.0, 2.0], percent) == expected


@pytest.mark.parametrize(
    ("scale", "command"),
    [(1.0, "`make bench-peers`"), (0.5, "`python -m bench.peers --scale 0.5`")],
)
def test_results_name_the_command_of_the_same_run(scale: float, command: str) -> None:
    page = result_page(replace(ENVIRONMENT, scale=scale), Report((), (), (), (), {}))
    assert f"Written by {command} on 2026-01-02" in page
