"""The notation of partitions, transactions and locks on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.protocol import Lock
from waltz.protocol.notation import (
    LAST_ID,
    format_partitions,
    parse_ids,
    parse_lock,
    parse_partitions,
    parse_range,
)


def test_ranges_and_single_partitions_are_merged() -> None:
    assert parse_partitions("0-6,7,10-16") == (*range(8), *range(10, 17))
    assert parse_partitions("3, 1-4 ,2") == (1, 2, 3, 4)


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "1-", "3-1", "1--2", "٣", "0-99999999"])
def test_malformed_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither|before it begins|names more than"):
        parse_partitions(text)


def test_single_id_is_range_of_one() -> None:
    assert parse_range("17") == (17, 17)
    assert parse_range("17-42") == (17, 42)


def test_ids_may_have_an_open_end() -> None:
    assert parse_ids("5-") == (5, None)
    assert parse_ids("17") == (17, 17)
    assert parse_ids("17-42") == (17, 42)


@pytest.mark.parametrize("text", ["", "-", "-5", "5--", "a-", "3-1"])
def test_malformed_range_of_ids_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither|before it begins"):
        parse_ids(text)


@pytest.mark.parametrize("text", [f"{1 << 63}", f"0-{1 << 63}", f"{1 << 63}-"])
def test_id_of_more_than_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="above 9223372036854775807, the largest one"):
        parse_ids(text)
    assert parse_ids(f"0-{LAST_ID}") == (0, LAST_ID)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_formatted_partitions_parse_to_the_same(partitions: set[int]) -> None:
    assert parse_partitions(format_partitions(partitions)) == tuple(sorted(partitions))


def test_no_partitions_are_formatted_as_dash() -> None:
    assert format_partitions(()) == "-"


def test_lock_name_and_id_are_parsed() -> None:
    assert parse_lock("account:17") == Lock("account", 17)
    assert parse_lock("a:b:-1") == Lock("a:b", -1)


@pytest.mark.parametrize("text", ["account", ":1", "account:", "account:x", f"a:{1 << 63}"])
def test_malformed_lock_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a lock|64 bits"):
        parse_lock(text)
