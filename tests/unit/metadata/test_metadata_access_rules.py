"""Test the rules that say which client may do what with which partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.metadata.core.codec import MalformedMetadata

PARTITIONS = 12
ranges = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, PARTITIONS - 1)).map(
    lambda ends: (min(ends), max(ends))
)
grants = st.builds(
    lambda name, right, ends: Grant(name, right, *ends),
    st.sampled_from(["a", "b"]),
    st.sampled_from(Right),
    ranges,
)
EVERY = [(n, r, p) for n in "ab" for r in Right for p in range(PARTITIONS)]


def allowed(rules: AccessRules) -> set[tuple[str, Right, int]]:
    return {each for each in EVERY if rules.allows([each[0]], each[1], each[2])}


def covered(grant: Grant) -> set[tuple[str, Right, int]]:
    return {(grant.name, grant.right, p) for p in range(grant.first, grant.last + 1)}


@given(st.lists(st.tuples(st.booleans(), grants), max_size=12))
def test_rules_allow_what_was_granted_and_not_revoked(changes: list[tuple[bool, Grant]]) -> None:
    rules, expected = AccessRules(), set[tuple[str, Right, int]]()
    for granted, grant in changes:
        if granted:
            rules, expected = rules.with_grant(grant), expected | covered(grant)
        else:
            rules, expected = rules.without_grant(grant), expected - covered(grant)
        assert allowed(rules) == expected
        assert AccessRules.decode(rules.encode()) == rules


def test_one_of_several_names_suffices() -> None:
    rules = AccessRules().with_grant(Grant("b", Right.READ, 0, 0))
    assert rules.allows(["a", "b"], Right.READ, 0)
    assert not rules.allows([], Right.READ, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format": 2, "grants": []}',
        b'{"format": 1}',
        b'{"format": 1, "grants": [{"name": "a", "right": "own", "first": 0, "last": 0}]}',
        b'{"format": 1, "grants": [{"name": "a", "right": "read", "first": 2, "last": 1}]}',
        b'{"format": 1, "grants": [{"name": "", "right": "read", "first": 0, "last": 0}]}',
        b'{"format": 1, "grants": [{"name": "a", "right": "read", "first": 0, "last": Infinity}]}',
    ],
)
def test_malformed_rules_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMetadata, match="AccessRules"):
        AccessRules.decode(data)


def test_rules_without_a_field_are_refused_with_its_name() -> None:
    with pytest.raises(MalformedMetadata, match="malformed AccessRules: it has no 'grants'"):
        AccessRules.decode(b'{"format": 1}')
