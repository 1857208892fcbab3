"""Test that the assignment policy loses no partition, moves few, and counts generations."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.metadata.core.formats import UNASSIGNED, OwnedPartition, PartitionAssignment
from waltz.metadata.core.policy import PolicyError, assign

Members = dict[int, tuple[int, ...]]


def keep_order(owned: list[OwnedPartition]) -> None:
    """Change nothing, instead of shuffling."""


@st.composite
def situations(draw: st.DrawFn, *, preferring: bool) -> tuple[PartitionAssignment, int, Members]:
    """Draw an old assignment, a number of partitions that is not smaller, and the members.

    A member may prefer partitions only if ``preferring``, also some that do not exist.
    """
    num_partitions = draw(st.integers(1, 20))
    old_partitions = draw(st.integers(0, num_partitions))
    old_servers = draw(st.lists(st.integers(1, 9), unique=True, min_size=1, max_size=5))
    owned: dict[int, list[OwnedPartition]] = {server: [] for server in old_servers}
    for partition in draw(st.permutations(range(old_partitions))):
        generation = draw(st.integers(1, 50))
        owned[draw(st.sampled_from(old_servers))].append(OwnedPartition(partition, generation))
    old = PartitionAssignment(
        draw(st.integers(-1, 100)), old_partitions, {s: tuple(o) for s, o in owned.items()}
    )
    preferences = st.lists(st.integers(-1, num_partitions), max_size=8 if preferring else 0)
    preferred = preferences.map(tuple)
    members = draw(st.dictionaries(st.integers(1, 9), preferred, min_size=1, max_size=6))
    return old, num_partitions, members


def owners(assignment: PartitionAssignment) -> dict[int, int]:
    return {o.partition: server for server, owned in assignment.servers.items() for o in owned}


def generations(assignment: PartitionAssignment) -> dict[int, int]:
    return dict(o for owned in assignment.servers.values() for o in owned)


@given(situations(preferring=True), st.randoms(use_true_random=False))
def test_every_partition_has_exactly_one_owner(
    situation: tuple[PartitionAssignment, int, Members], rng: random.Random
) -> None:
    old, num_partitions, members = situation
    new = assign(old, 5, num_partitions, members, rng.shuffle)
    assert (new.cversion, new.num_partitions) == (5, num_partitions)
    assert new.servers.keys() == members.keys()
    counts = Counter(o.partition for owned in new.servers.values() for o in owned)
    assert counts == Counter(range(num_partitions))
    before, after = owners(old), owners(new)
    old_generations = generations(old)
    for partition, generation in generations(new).items():
        stayed = before.get(partition) == after[partition]
        assert generation == old_generations.get(partition, 0) + (not stayed)


@given(situations(preferring=True))
def test_assignment_honours_preferences(
    situation: tuple[PartitionAssignment, int, Members],
) -> None:
    old, num_partitions, members = situation
    after = owners(assign(old, 5, num_partitions, members, keep_order))
    for partition, owner in after.items():
        wanted_by = [server for server in sorted(members) if partition in members[server]]
        assert not wanted_by or owner == wanted_by[0]


@given(situations(preferring=True))
def test_server_exceeds_its_share_only_by_preference(
    situation: tuple[PartitionAssignment, int, Members],
) -> None:
    old, num_partitions, members = situation
    share = math.ceil(num_partitions / len(members))
    for server, owned in assign(old, 5, num_partitions, members, keep_order).servers.items():
        assert len(owned) <= max(share, len(set(members[server])))


@given(situations(preferring=False))
def test_assignment_without_preferences_is_balanced(
    situation: tuple[PartitionAssignment, int, Members],
) -> None:
    old, num_partitions, members = situation
    sizes = [len(o) for o in assign(old, 5, num_partitions, members, keep_order).servers.values()]
    assert max(sizes) - min(sizes) <= 1


@given(situations(preferring=False))
def test_assignment_of_unchanged_members_moves_nothing(
    situation: tuple[PartitionAssignment, int, Members],
) -> None:
    old, num_partitions, members = situation
    once = assign(old, 5, num_partitions, members, keep_order)
    again = assign(once, 6, num_partitions, members, keep_order)
    assert owners(again) == owners(once)
    assert generations(again) == generations(once)


def test_preference_up_to_the_minimum_leaves_no_partition_without_owner() -> None:
    """In this case 0.13.2 leaves a partition without an owner."""
    new = assign(UNASSIGNED, 1, 3, {1: (1,), 2: ()}, keep_order)
    assert owners(new) == {1: 1, 0: 1, 2: 2}


def test_assignment_without_members_is_empty() -> None:
    assert assign(UNASSIGNED, 4, 3, {}, keep_order) == PartitionAssignment(4, 3, {})


def test_assignment_with_fewer_partitions_is_refused() -> None:
    old = assign(UNASSIGNED, 1, 3, {1: ()}, keep_order)
    with pytest.raises(PolicyError, match="2 partitions but 3 are assigned"):
        assign(old, 2, 2, {1: ()}, keep_order)


@pytest.mark.parametrize(
    ("owned", "reason"),
    [
        (((0, 1),), "partition 1 has no owner"),
        (((0, 1), (1, 1), (1, 2)), "partition 1 of 2 is listed twice"),
        (((0, 1), (1, 1), (2, 1)), "partition 2 of 2 is listed twice or does not exist"),
    ],
)
def test_assignment_from_a_damaged_one_is_refused(
    owned: tuple[tuple[int, int], ...], reason: str
) -> None:
    old = PartitionAssignment(1, 2, {1: tuple(OwnedPartition(*o) for o in owned)})
    with pytest.raises(PolicyError, match=reason):
        assign(old, 2, 2, {1: ()}, keep_order)
