"""Since when a problem exists, as the metadata of partitions show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.console_world import metadata, sample
from waltz.admin.core.problem_times import (
    UNKNOWN_PERIOD,
    Period,
    of_closed_session,
    of_missing_server,
    of_refused_replica,
    of_silent_server,
    of_silent_storage,
)
from waltz.metadata.core.formats import PartitionMetadata

WITHOUT_B = {0: metadata(0, without=("b:1",)), 1: metadata(1, without=("b:1",))}


@pytest.mark.parametrize(
    ("sessions", "changed_at", "period"),
    [
        (WITHOUT_B, {0: 70.0, 1: 50.0}, Period(since=50.0)),
        ({0: WITHOUT_B[0]}, {0: 70.0, 1: 50.0}, Period(since=70.0, after=50.0)),
        ({1: WITHOUT_B[1]}, {0: 70.0, 1: 50.0}, Period(after=70.0)),
        ({}, {0: 70.0}, Period(after=70.0)),
        ({}, {0: 70.0, 1: 50.0}, Period(after=70.0)),
        ({}, {}, UNKNOWN_PERIOD),
    ],
    ids=[
        "out of both",
        "died in between",
        "was out, then answered",
        "in a session",
        "in both",
        "unknown",
    ],
)
def test_silent_storage_is_dated_by_the_sessions_that_it_takes_part_in(
    sessions: dict[int, PartitionMetadata], changed_at: dict[int, float], period: Period
) -> None:
    now = replace(sample(sessions=sessions), changed_at=changed_at)
    assert of_silent_storage(now, "b:1") == period


def test_silent_server_answered_when_it_last_wrote_metadata() -> None:
    now = replace(sample(), changed_at={0: 50.0, 1: 70.0})
    assert of_silent_server(now, 3) == Period(after=70.0)
    # The server of an earlier generation wrote the metadata of partition 1.
    earlier = replace(now.metadata[1], generation=4)
    moved = replace(now, metadata={**now.metadata, 1: earlier})
    assert of_silent_server(moved, 3) == Period(after=50.0)
    assert of_silent_server(now, 4) == UNKNOWN_PERIOD


def test_partition_had_a_server_when_its_metadata_were_written() -> None:
    assert of_missing_server(replace(sample(), changed_at={0: 50.0}), 0) == Period(after=50.0)
    assert of_missing_server(sample(), 0) == UNKNOWN_PERIOD


def test_session_was_open_when_a_majority_took_part() -> None:
    now = replace(sample(), changed_at={0: 50.0})
    assert of_closed_session(now, 0) == Period(after=50.0)
    minority = replace(now, metadata={0: metadata(0, without=("a:1", "b:1"))})
    assert of_closed_session(minority, 0) == UNKNOWN_PERIOD


def test_refused_replica_takes_part_in_no_session() -> None:
    now = replace(sample(sessions={0: WITHOUT_B[0]}), changed_at={0: 50.0, 1: 70.0})
    assert of_refused_replica(now, 0, "b:1") == Period(since=50.0)
    assert of_refused_replica(now, 1, "b:1") == Period(after=70.0)


def test_period_of_first_problem_is_the_earliest_one() -> None:
    assert Period.of_first([Period(since=9.0), Period(since=7.0)]) == Period(since=7.0)
    assert Period.of_first([Period(after=3.0), Period(after=5.0)]) == Period(after=3.0)
    assert Period.of_first([Period(after=3.0), UNKNOWN_PERIOD]) == UNKNOWN_PERIOD
    assert Period.of_first([Period(after=8.0), Period(since=7.0)]) == Period(since=7.0)
    assert Period.of_first([]) == UNKNOWN_PERIOD
