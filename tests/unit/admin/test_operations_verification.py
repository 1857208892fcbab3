"""Test that each of the seven checks passes on a healthy cluster and fails on its fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from waltz.admin import Check, ClusterFacts, ServerReport, StorageReport, verify
from waltz.metadata.core.formats import (
    UNRESOLVED,
    OwnedPartition,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
    ServerDescriptor,
)

IN_SESSION = ReplicaState(4, UNRESOLVED)
HOLDING = ("a:1", "b:1", "c:1")
"""The storages that hold partition 0. Two more, d and e, hold partition 1 alone."""

SOUND = ClusterFacts(
    num_partitions=2,
    assignment=PartitionAssignment(3, 2, {1: (OwnedPartition(0, 5),), 2: (OwnedPartition(1, 1),)}),
    members={1: ServerDescriptor(1, "s", 10), 2: ServerDescriptor(2, "s", 20)},
    replicas=ReplicaAssignments({**dict.fromkeys(HOLDING, (0,)), "d:1": (1,), "e:1": (1,)}),
    metadata={
        0: PartitionMetadata(5, 4, dict.fromkeys(HOLDING, IN_SESSION)),
        1: PartitionMetadata(1, 4, dict.fromkeys(("d:1", "e:1"), IN_SESSION)),
    },
    servers={
        1: ServerReport(frozenset({0}), dict.fromkeys(HOLDING, True), {0: True}),
        2: ServerReport(frozenset({1}), {"d:1": True, "e:1": True}, {1: True}),
    },
    storages={
        **dict.fromkeys(HOLDING, StorageReport({0: True}, {0: 4})),
        "d:1": StorageReport({1: True}, {1: 4}),
        "e:1": StorageReport({1: True}, {1: 4}),
    },
)


def failed(found: ClusterFacts, partition: int = 0) -> Mapping[Check, str]:
    findings = verify(found, partition)
    assert [finding.check for finding in findings] == list(Check)
    return {f.check: f.problem for f in findings if f.problem is not None}


def owned_by(servers: Mapping[int, tuple[OwnedPartition, ...]]) -> ClusterFacts:
    return replace(SOUND, assignment=PartitionAssignment(3, 2, servers))


def server_says(answers: ServerReport) -> ClusterFacts:
    return replace(SOUND, servers={**SOUND.servers, 1: answers})


def storages_say(answers: Mapping[str, StorageReport]) -> ClusterFacts:
    return replace(SOUND, storages={**SOUND.storages, **answers})


def test_healthy_cluster_passes_all_checks() -> None:
    assert failed(SOUND, 0) == failed(SOUND, 1) == {}
    assert len(verify(SOUND)) == 2 * len(Check)


def test_unknown_partition_fails_the_checks() -> None:
    assert "partitions 0 to 1 only" in failed(SOUND, 2)[Check.ONE_SERVER]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (owned_by({2: (OwnedPartition(1, 1),)}), "no server"),
        (owned_by({1: (OwnedPartition(0, 5),), 2: (OwnedPartition(0, 1),)}), "servers 1, 2"),
        (owned_by({9: (OwnedPartition(0, 5),)}), "server 9"),
    ],
)
def test_partition_with_no_or_two_servers_fails_assignment_check(
    found: ClusterFacts, expected: str
) -> None:
    assert expected in failed(found)[Check.ONE_SERVER]


def test_server_that_disagrees_with_assignment_fails_consistency_check() -> None:
    forgot = failed(server_says(replace(SOUND.servers[1], partitions=frozenset())))
    assert forgot.keys() == {Check.SERVER_AGREES}
    other = replace(SOUND.servers[2], partitions=frozenset({0, 1}))
    both = failed(replace(SOUND, servers={**SOUND.servers, 2: other}))
    assert both == {Check.SERVER_AGREES: "server 2 has it without an assignment"}


def test_server_that_cannot_reach_storages_fails_connectivity_check() -> None:
    cut_off = failed(server_says(replace(SOUND.servers[1], storages={"a:1": True, "b:1": False})))
    assert cut_off == {
        Check.STORAGES_REACHED: "server 1 does not reach storage b:1; "
        "server 1 does not reach storage c:1"
    }


def test_storages_that_disagree_with_assignment_fail_consistency_check() -> None:
    forgot = failed(storages_say({"b:1": StorageReport()}))
    assert forgot == {Check.STORAGES_AGREE: "it is assigned to storage b:1, which does not hold it"}
    kept = failed(storages_say({"d:1": StorageReport({0: True, 1: True})}))
    assert kept == {Check.STORAGES_AGREE: "storage d:1 holds it without an assignment"}


def test_checks_name_every_dead_process_and_nothing_that_follows_from_it() -> None:
    gone = {name: StorageReport(problem=f"storage {name}: refused") for name in ("a:1", "b:1")}
    by_check = {each.check: each.problems for each in verify(storages_say(gone), 0)}
    assert by_check[Check.STORAGES_AGREE] == ("storage a:1: refused", "storage b:1: refused")
    silent = {
        each.check: each.problems for each in verify(server_says(ServerReport(problem="x")), 0)
    }
    for check in (Check.SERVER_AGREES, Check.STORAGES_REACHED, Check.SERVER_HEALTHY):
        assert silent[check] == ("x",)


def test_quorum_check_ignores_replicas_that_are_not_assigned() -> None:
    """Two of five storages run: no majority of all storages, but all replicas of partition 1."""
    gone = dict.fromkeys(HOLDING, StorageReport(problem="gone"))
    assert Check.QUORUM not in failed(storages_say(gone), 1)
    assert failed(storages_say(gone), 0)[Check.QUORUM].startswith("0 of 3")
    one_gone = storages_say({"e:1": StorageReport({1: False}, {1: 4})})
    assert failed(one_gone, 1) == {Check.QUORUM: "1 of 2 replicas are available, and 2 are needed"}


@pytest.mark.parametrize(
    "state", [ReplicaState(3, UNRESOLVED), ReplicaState(4, 17), ReplicaState(-1, 17), None]
)
def test_replica_outside_the_session_fails_recovery_check(state: ReplicaState | None) -> None:
    replicas = {storage: IN_SESSION for storage in HOLDING if storage != "b:1"}
    if state is not None:
        replicas["b:1"] = state
    found = replace(SOUND, metadata={0: PartitionMetadata(5, 4, replicas)})
    assert failed(found).keys() == {Check.REPLICAS_RECOVERED}


@pytest.mark.parametrize("state", [ReplicaState(-1, 17), None])
def test_replica_that_was_never_in_a_session_has_not_recovered_yet(
    state: ReplicaState | None,
) -> None:
    replicas = {storage: IN_SESSION for storage in HOLDING if storage != "b:1"}
    if state is not None:
        replicas["b:1"] = state
    found = replace(SOUND, metadata={0: PartitionMetadata(5, 4, replicas)})
    text = "the replica on b:1 has not recovered yet"
    assert failed(found)[Check.REPLICAS_RECOVERED] == text


def test_replica_being_filled_is_reported() -> None:
    replicas = dict.fromkeys(HOLDING, IN_SESSION) | {"b:1": ReplicaState(4, 17)}
    found = replace(SOUND, metadata={0: PartitionMetadata(5, 4, replicas)})
    assert "being filled in session 4" in str(failed(found)[Check.REPLICAS_RECOVERED])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (StorageReport({0: True}, {0: -1}), "reports that it is in no session, not in 4"),
        (StorageReport({0: True}, {0: 3}), "reports that it is in session 3, not in 4"),
    ],
)
def test_replica_replaced_within_session_is_reported(answers: StorageReport, expected: str) -> None:
    """The state after an unassignment at the storage only, followed by an assignment."""
    problem = failed(storages_say({"b:1": answers}))[Check.REPLICAS_RECOVERED]
    assert problem == f"the replica on b:1 {expected}"


def test_storage_without_answer_does_not_fail_recovery_check() -> None:
    silent = failed(storages_say({"b:1": StorageReport(problem="no answer")}))
    assert Check.REPLICAS_RECOVERED not in silent


def test_partition_that_never_opened_fails_recovery_check() -> None:
    found = replace(SOUND, metadata={})
    assert failed(found) == {Check.REPLICAS_RECOVERED: "no server has ever opened it"}


def test_partition_reported_unhealthy_by_server_fails_health_check() -> None:
    for health in ({0: False}, {}):
        sick = failed(server_says(replace(SOUND.servers[1], health=health)))
        assert sick == {Check.SERVER_HEALTHY: "server 1 could not open a store session"}


def test_server_without_answer_fails_its_checks() -> None:
    silent = failed(server_says(ServerReport(problem="no answer")))
    unanswered = {Check.SERVER_AGREES, Check.STORAGES_REACHED, Check.SERVER_HEALTHY}
    assert silent == dict.fromkeys(unanswered, "no answer")
