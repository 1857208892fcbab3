"""Test ``waltz access``: how rights and partitions become grants, and how grants are shown."""

from __future__ import annotations

import pytest
import typer

from waltz.cli.access import rows as access_rows
from waltz.cli.access.commands import _grants, _rights, _with_grants, _without_grants
from waltz.cli.running import Failed
from waltz.metadata.core.access_rules import AccessRules, Grant, Right


def test_rights_are_separated_by_commas_and_counted_once() -> None:
    assert _rights("read, append,read") == (Right.READ, Right.APPEND)


@pytest.mark.parametrize("text", ["", "write", "read,", "read append"])
def test_unknown_right_is_a_usage_error_that_lists_the_rights(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="the rights are read, append, administer"):
        _rights(text)


def test_each_right_and_range_becomes_a_grant() -> None:
    assert _grants("app", (Right.READ, Right.APPEND), "0-2,4", 8) == [
        Grant("app", Right.READ, 0, 2),
        Grant("app", Right.READ, 4, 4),
        Grant("app", Right.APPEND, 0, 2),
        Grant("app", Right.APPEND, 4, 4),
    ]


def test_grant_without_ranges_is_for_all_partitions() -> None:
    assert _grants("app", (Right.READ,), None, 8) == [Grant("app", Right.READ, 0, 7)]


def test_partition_beyond_the_cluster_is_refused() -> None:
    with pytest.raises(Failed, match="there is no partition 8: the cluster has 0 to 7"):
        _grants("app", (Right.READ,), "7-8", 8)


def test_empty_name_is_refused() -> None:
    with pytest.raises(Failed, match="the name of the client is empty"):
        _grants(" ", (Right.READ,), None, 8)


def test_revoked_grants_are_removed_from_granted_ones() -> None:
    rules = _with_grants(AccessRules(), _grants("app", (Right.READ,), "0-4", 8))
    rules = _without_grants(rules, _grants("app", (Right.READ,), "2", 8))
    assert rules.grants == (Grant("app", Right.READ, 0, 1), Grant("app", Right.READ, 3, 4))


def test_grants_are_shown_as_rows_of_one_client_or_all() -> None:
    rules = AccessRules((Grant("a", Right.READ, 0, 1), Grant("b", Right.APPEND, 2, 2)))
    assert access_rows.render_grants(rules).value == [
        {"client": "a", "right": "read", "first": 0, "last": 1},
        {"client": "b", "right": "append", "first": 2, "last": 2},
    ]
    assert [each["client"] for each in access_rows.render_grants(rules, "b").value] == ["b"]
    assert access_rows.render_grants(None).value == []
