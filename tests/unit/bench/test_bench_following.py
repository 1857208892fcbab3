"""The records that followers get say when they were appended."""

from __future__ import annotations

import pytest

from bench.following import age, stamped


@pytest.mark.parametrize("size", [8, 512])
def test_stamped_record_has_its_size(size: int) -> None:
    assert len(stamped(size)) == size


def test_age_of_a_record_is_the_time_since_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.following.time.monotonic", lambda: 100.0)
    record = stamped(16)
    monkeypatch.setattr("bench.following.time.monotonic", lambda: 100.25)
    assert age(record) == 0.25
