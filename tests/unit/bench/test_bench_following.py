"""The records that followers get say when they were appended."""

from __future__ import annotations

import time

import pytest

from bench.following import age, stamped


@pytest.mark.parametrize("size", [8, 512])
def test_stamped_record_has_its_size(size: int) -> None:
    assert len(stamped(size)) == size


def test_age_of_a_record_is_the_time_since_it_was_made() -> None:
    before = time.monotonic()
    record = stamped(16)
    made = time.monotonic()
    while (later := time.monotonic()) == made:
        continue
    assert later - made <= age(record) <= time.monotonic() - before
