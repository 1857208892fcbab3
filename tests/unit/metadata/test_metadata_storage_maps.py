"""The rules of the storage maps: what each operation changes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor, ReplicaAssignments
from waltz.metadata.core.storage_maps import (
    ChangeRefused,
    ReplicaChange,
    StorageMaps,
    add_storage_node,
    assign_everything,
    assign_partitions,
    auto_assign,
    change_replicas,
    remove_storage_node,
    unassign_partitions,
)


def maps(
    groups: dict[str, int], partitions: dict[str, tuple[int, ...]] | None = None
) -> StorageMaps:
    held = {storage: (partitions or {}).get(storage, ()) for storage in groups}
    ports = dict.fromkeys(groups, 9000)
    return StorageMaps(GroupDescriptor(groups), ConnectionMetadata(ports), ReplicaAssignments(held))


def test_add_storage_node_changes_all_three_maps() -> None:
    after = add_storage_node(maps({"a:1": 0}), "b:1", 1, 9001)
    assert after.groups.groups == {"a:1": 0, "b:1": 1}
    assert after.connections.admin_ports == {"a:1": 9000, "b:1": 9001}
    assert after.assignments.partitions == {"a:1": (), "b:1": ()}


def test_remove_storage_node_changes_all_three_maps() -> None:
    assert remove_storage_node(maps({"a:1": 0, "b:1": 1}), "b:1") == maps({"a:1": 0})


def test_remove_storage_node_added_in_part_removes_the_rest() -> None:
    half = StorageMaps(GroupDescriptor({"a:1": 0}), ConnectionMetadata({}), ReplicaAssignments({}))
    assert remove_storage_node(half, "a:1") == StorageMaps.empty()


def test_assign_partitions_keeps_them_sorted() -> None:
    after = assign_partitions(maps({"a:1": 0}, {"a:1": (3,)}), "a:1", [4, 0, 4], 5)
    assert after.assignments.partitions == {"a:1": (0, 3, 4)}


def test_unassign_partitions_keeps_the_others() -> None:
    before = maps({"a:1": 0, "b:1": 0}, {"a:1": (0, 1, 2), "b:1": (1, 2)})
    after = unassign_partitions(before, "a:1", [1])
    assert after.assignments.partitions == {"a:1": (0, 2), "b:1": (1, 2)}


def test_auto_assign_deals_round_robin() -> None:
    before = maps({"a:1": 0, "b:1": 1, "c:1": 0}, {"b:1": (0, 1, 2, 3, 4)})
    after = auto_assign(before, 0, 5)
    assert after.assignments.partitions == {
        "a:1": (0, 2, 4),
        "b:1": (0, 1, 2, 3, 4),
        "c:1": (1, 3),
    }


def test_assign_everything_gives_each_storage_all_partitions() -> None:
    after = assign_everything({"a:1": 0, "b:1": 1}, {"a:1": 9001, "b:1": 9002}, 2)
    assert after.assignments.partitions == {"a:1": (0, 1), "b:1": (0, 1)}
    assert after.connections.admin_ports == {"a:1": 9001, "b:1": 9002}


def test_change_replicas_changes_only_the_named_partitions() -> None:
    before = maps({"a:1": 0, "b:1": 1, "c:1": 1}, {"a:1": (0, 1), "b:1": (2, 1, 0)})
    after = change_replicas(
        before,
        [
            ReplicaChange(1, frozenset({"a:1", "b:1"}), frozenset({"a:1", "c:1"})),
            ReplicaChange(0, frozenset({"a:1", "b:1"}), frozenset({"a:1", "b:1", "c:1"})),
        ],
    )
    assert after.assignments.partitions == {"a:1": (0, 1), "b:1": (0, 2), "c:1": (0, 1)}
    assert (after.groups, after.connections) == (before.groups, before.connections)


@pytest.mark.parametrize(
    ("expected", "wanted", "why"),
    [
        ({"a:1"}, {"b:1"}, "Partition 0 is on a:1, b:1, no longer on a:1"),
        ({"a:1", "b:1"}, set(), "No storage would hold partition 0"),
        ({"a:1", "b:1"}, {"a:1", "d:1"}, "Storage d:1 is not in the cluster"),
    ],
)
def test_change_replicas_that_breaks_a_rule_is_refused(
    expected: set[str], wanted: set[str], why: str
) -> None:
    before = maps({"a:1": 0, "b:1": 1}, {"a:1": (0,), "b:1": (0,)})
    with pytest.raises(ChangeRefused, match=why):
        change_replicas(before, [ReplicaChange(0, frozenset(expected), frozenset(wanted))])


TWO = maps({"a:1": 0, "b:1": 1}, {"a:1": (0, 1), "b:1": (0, 1)})
GROUPLESS = StorageMaps(
    GroupDescriptor({}), ConnectionMetadata({"a:1": 9}), ReplicaAssignments({"a:1": (0,)})
)
HALF_ADDED = StorageMaps(
    GroupDescriptor({"c:1": 2}), ConnectionMetadata({}), ReplicaAssignments({})
)

REFUSALS: list[tuple[Callable[[], StorageMaps], str]] = [
    (lambda: add_storage_node(TWO, "b:1", 0, 9), "already in the cluster, in group 1"),
    (lambda: add_storage_node(GROUPLESS, "a:1", 0, 9), "only in some of the maps, .*; remove it"),
    (lambda: add_storage_node(HALF_ADDED, "c:1", 2, 9), "only in some of the maps, .*; remove it"),
    (lambda: add_storage_node(TWO, "c:1", -1, 9), "group ids start at 0"),
    (lambda: add_storage_node(TWO, "c", 0, 9), "must be host:port"),
    (lambda: add_storage_node(TWO, "c:0", 0, 9), "must be host:port"),
    (lambda: add_storage_node(TWO, "c d:1", 0, 9), "contains a blank or a slash"),
    (lambda: add_storage_node(TWO, "c:1", 0, 65536), "65536 is not a port"),
    (lambda: remove_storage_node(TWO, "c:1"), "not in the cluster; its storages are: a:1, b:1"),
    (lambda: remove_storage_node(TWO, "b:1"), "still has partitions 0, 1 assigned"),
    (lambda: assign_partitions(TWO, "a:1", [], 3), "No partition was given"),
    (lambda: assign_partitions(TWO, "a:1", [-1, 2], 3), "Partition -1 does not exist"),
    (lambda: assign_partitions(TWO, "a:1", [2, 3], 3), "Partition 3 does not exist.* 0 to 2"),
    (lambda: assign_partitions(TWO, "c:1", [2], 3), "c:1 is not in the cluster"),
    (lambda: assign_partitions(HALF_ADDED, "c:1", [2], 3), "only in some of the maps"),
    (lambda: assign_partitions(TWO, "a:1", [1, 2], 3), "already has partition 1"),
    (lambda: unassign_partitions(TWO, "a:1", []), "No partition was given"),
    (lambda: unassign_partitions(GROUPLESS, "a:1", [0]), "is in no group"),
    (lambda: unassign_partitions(TWO, "c:1", [0]), "c:1 is not in the cluster"),
    (lambda: unassign_partitions(TWO, "a:1", [0, 2]), "does not have partition 2"),
    (lambda: unassign_partitions(TWO, "a:1", [1]), "only replica of partition 1 in group 0"),
    (lambda: unassign_partitions(TWO, "b:1", [1]), "with: waltz storage retire-group 1"),
    (lambda: auto_assign(TWO, 7, 3), "Group 7 has no storage"),
    (lambda: auto_assign(TWO, 1, 3), "b:1 of group 1 already has partitions 0, 1"),
]


@pytest.mark.parametrize(("operation", "reason"), REFUSALS, ids=[r for _, r in REFUSALS])
def test_storage_map_change_that_breaks_a_rule_is_refused(
    operation: Callable[[], StorageMaps], reason: str
) -> None:
    with pytest.raises(ChangeRefused, match=reason):
        operation()
