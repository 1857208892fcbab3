"""The delays between attempts at an operation that fails."""

from __future__ import annotations

from itertools import islice

import pytest

from waltz.net.core.backoff import Backoff

BACKOFF = Backoff(0.1, 1.0)


def test_backoff_delay_doubles_up_to_the_longest() -> None:
    assert [BACKOFF.delay(failures) for failures in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_backoff_after_thousands_of_failures_is_the_longest() -> None:
    assert BACKOFF.delay(100_000) == 1.0


def test_backoff_delays_without_bound_do_not_end() -> None:
    assert list(islice(BACKOFF.delays(), 1000))[-1] == 1.0


@pytest.mark.parametrize(
    ("within", "expected"),
    [(0.0, []), (0.1, [0.1]), (0.25, [0.1]), (0.31, [0.1, 0.2]), (2.0, [0.1, 0.2, 0.4, 0.8])],
)
def test_backoff_delays_add_up_to_at_most_the_bound(within: float, expected: list[float]) -> None:
    assert list(BACKOFF.delays(within)) == expected
