"""The page of results says who is ahead, and what was not measured."""

from __future__ import annotations

import pytest

from bench.peers.measured import Description, Measured
from bench.peers.report import Environment, Series, result_page, verdict

ENVIRONMENT = Environment("2 cores", "2026-01-02", "abc1234", 512, 3)
PEERS = [
    Description("Waltz", "0.1.0", "2 of 3 storages", "one write lock"),
    Description("NATS JetStream", "v2.12.2", "2 of 3 servers", "the last sequence"),
]


def series(peer: str, *rates: float, shape: str = "8 x 5", locks: bool = False) -> Series:
    rounds = tuple(Measured(10.0, int(10 * rate), 1.5, 9.25, 2.0, 3.0) for rate in rates)
    return Series(shape, locks, peer, rounds)


def test_measured_run_has_its_rate_and_cpu_time_per_record() -> None:
    run = Measured(2.0, 1000, 1.0, 2.0, client_seconds=0.01, server_seconds=0.03)
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


def test_page_has_versions_durability_rates_and_missing_peers() -> None:
    results = [series("Waltz", 1500), series("NATS JetStream", 1000, locks=True)]
    page = result_page(ENVIRONMENT, PEERS, results, {"postgresql": "install it"})
    assert "| Waltz | 0.1.0 | 2 of 3 storages | one write lock |" in page
    assert "| 8 x 5 | 1,500 |" in page
    assert "| 8 x 5 | NATS JetStream | 1.50 | 9.25 | 500 | 1,000 to 1,000 |" in page
    assert "Not measured: **postgresql**: install it." in page
    assert "abc1234" in page
