"""Test the limits of each client: its connections, and the bytes that it appends per second."""

from __future__ import annotations

import pytest

from waltz_server.core.access.client_quotas import ClientQuotas, QuotaLimits


def test_limits_of_zero_limit_nothing() -> None:
    assert not QuotaLimits().are_set
    quotas = ClientQuotas(QuotaLimits())
    for _ in range(100):
        assert quotas.enter("a", 0.0)
    assert quotas.appended("a", 1 << 40, 0.0) == 0.0


def test_connections_of_each_client_are_limited() -> None:
    quotas = ClientQuotas(QuotaLimits(connections=2))
    assert quotas.limits.are_set
    assert [quotas.enter("a", 0.0) for _ in range(3)] == [True, True, False]
    assert quotas.enter("b", 0.0)
    quotas.leave("a")
    assert [quotas.enter("a", 0.0) for _ in range(2)] == [True, False]


def test_client_waits_after_a_burst_until_its_rate_is_kept() -> None:
    quotas = ClientQuotas(QuotaLimits(append_bytes_per_second=100))
    quotas.enter("a", 10.0)
    quotas.enter("b", 10.0)
    assert quotas.appended("a", 100, 10.0) == 0.0
    assert quotas.appended("a", 300, 10.0) == pytest.approx(3.0)
    assert quotas.appended("a", 0, 12.0) == pytest.approx(1.0)
    assert quotas.appended("b", 100, 12.0) == 0.0


def test_connections_of_one_client_share_its_rate() -> None:
    quotas = ClientQuotas(QuotaLimits(append_bytes_per_second=100))
    quotas.enter("a", 0.0)
    quotas.enter("a", 0.0)
    assert quotas.appended("a", 100, 0.0) == 0.0
    assert quotas.appended("a", 50, 0.0) == pytest.approx(0.5)


def test_new_connection_does_not_reset_the_rate() -> None:
    quotas = ClientQuotas(QuotaLimits(append_bytes_per_second=100))
    quotas.enter("a", 0.0)
    quotas.appended("a", 1000, 0.0)
    quotas.leave("a")
    for number in range(1000):
        quotas.enter(f"other {number}", 1.0)
        quotas.leave(f"other {number}")
    quotas.enter("a", 1.0)
    assert quotas.appended("a", 0, 1.0) == pytest.approx(8.0)


def test_idle_clients_are_forgotten() -> None:
    quotas = ClientQuotas(QuotaLimits(append_bytes_per_second=100, connections=1))
    for number in range(5000):
        assert quotas.enter(f"client {number}", float(number))
        quotas.appended(f"client {number}", 10, float(number))
        quotas.leave(f"client {number}")
    assert len(quotas) <= 1000


def test_client_with_a_connection_is_not_forgotten() -> None:
    quotas = ClientQuotas(QuotaLimits(append_bytes_per_second=100, connections=1))
    assert quotas.enter("a", 0.0)
    for number in range(1000):
        quotas.enter(f"other {number}", 1.0)
    assert not quotas.enter("a", 1.0)
    quotas.leave("a")
    assert quotas.enter("a", 1.0)
