"""Test the batches of a session: which are committed, and which are kept for slow replicas."""

from __future__ import annotations

from collections import deque

import pytest

from tests.support.replication_world import append
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.replication.log_tail import LogTail, SentBatch, form_batch, record_bytes

LIMITS = ReplicationLimits(batch_records=2, batch_bytes=1 << 20)
UNLIMITED = 1 << 40


def batch(first_id: int, count: int = 2) -> SentBatch:
    return form_batch(deque(append(str(first_id + n)) for n in range(count)), first_id, LIMITS)


def tail_of(batches: int, kept_bytes: int = UNLIMITED) -> LogTail:
    """Return a tail with batches of two appends each, from id 0 on."""
    tail = LogTail(kept_bytes)
    for number in range(batches):
        tail.add(batch(2 * number))
    return tail


def kept(tail: LogTail) -> list[int]:
    return [first for first in range(0, 20, 2) if tail.starting_at(first) is not None]


@pytest.mark.parametrize(
    ("committed_id", "first_ids"), [(-1, []), (0, []), (1, [0]), (2, [0]), (3, [0, 2]), (9, [0, 2])]
)
def test_batch_is_committed_with_its_last_id(committed_id: int, first_ids: list[int]) -> None:
    tail = tail_of(2)
    assert [each.first_id for each in tail.commit(committed_id)] == first_ids
    assert tail.in_flight == 2 - len(first_ids)
    assert len(tail.in_doubt()) == 2 * tail.in_flight
    assert tail.commit(committed_id) == [], "a batch is committed once"


def test_trim_drops_what_every_replica_has() -> None:
    tail = tail_of(3)
    tail.commit(5)
    tail.trim(2)
    assert kept(tail) == [2, 4], "a replica lacks the last record of the second batch"
    assert tail.first_id == 2
    tail.trim(5)
    assert kept(tail) == []
    assert tail.first_id is None


def test_trim_drops_the_oldest_batches_beyond_the_bound() -> None:
    tail = tail_of(4, kept_bytes=1200)
    tail.commit(7)
    tail.trim(-1)
    assert kept(tail) == [4, 6]


def test_trim_keeps_what_is_not_committed() -> None:
    tail = tail_of(3, kept_bytes=0)
    tail.commit(1)
    tail.trim(5)
    assert kept(tail) == [2, 4]


def test_batch_takes_as_many_appends_as_it_may_have() -> None:
    queue = deque(append("x" * 10) for _ in range(5))
    assert form_batch(queue, 7, LIMITS).records.count == 2
    assert len(queue) == 3
    size = record_bytes(queue[0])
    two = form_batch(queue, 9, ReplicationLimits(batch_records=9, batch_bytes=3 * size - 1))
    assert (two.first_id, two.last_id, two.records.count) == (9, 10, 2)
    assert len(two.records.wire) == 2 * size
    assert len(queue) == 1


def test_batch_exceeds_the_bytes_only_by_a_single_record() -> None:
    queue = deque(append(text) for text in ("a", "x" * 1000, "b", "c"))
    limits = ReplicationLimits(batch_bytes=500)
    counts = []
    while queue:
        counts.append(form_batch(queue, 0, limits).records.count)
    assert counts == [1, 1, 2]


@pytest.mark.parametrize("first_id", [0, 1, 3])
def test_batch_that_does_not_follow_the_last_one_is_refused(first_id: int) -> None:
    tail = tail_of(1)
    with pytest.raises(AssertionError):
        tail.add(batch(first_id))
