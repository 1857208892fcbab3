"""The next step of a server and of a client for a given membership."""

from __future__ import annotations

import pytest

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment, ServerDescriptor
from waltz.metadata.core.membership_steps import (
    NOT_APPLIED,
    AwaitChange,
    CreateNode,
    Member,
    Membership,
    OwnPartitions,
    UseEndpoints,
    WriteAssignment,
    next_for_client,
    next_for_server,
)

SESSION = 70
OWNED = {1: (OwnedPartition(0, 3),), 2: (OwnedPartition(1, 1), OwnedPartition(2, 1))}


def member(server_id: int, *, session: int = SESSION, number: int | None = None) -> Member:
    number = server_id if number is None else number
    descriptor = ServerDescriptor(server_id, f"host{server_id}", 6000 + number, (server_id,))
    return Member(f"s_{number:010d}", session, descriptor)


def membership(*members: Member, lag: int = 0) -> Membership:
    """Return a membership; the assignment does not account for its last ``lag`` changes."""
    return Membership(PartitionAssignment(9, 3, OWNED), 5, 9 + lag, members)


def test_server_owns_the_partitions_of_a_new_consistent_assignment() -> None:
    both = membership(member(1), member(2))
    assert next_for_server(both, 2, SESSION, NOT_APPLIED) == OwnPartitions({1: 1, 2: 1}, 5)
    assert next_for_server(both, 2, SESSION, 4) == OwnPartitions({1: 1, 2: 1}, 5)
    assert next_for_server(both, 2, SESSION, 5) == AwaitChange()


def test_server_missing_in_the_assignment_owns_nothing() -> None:
    assert next_for_server(membership(member(1), member(3)), 3, SESSION, 4) == OwnPartitions({}, 5)


def test_server_with_the_smallest_id_writes_the_assignment() -> None:
    lagging = membership(member(2), member(3), lag=1)
    assert next_for_server(lagging, 2, SESSION, 5) == WriteAssignment()
    assert next_for_server(lagging, 3, SESSION, 5) == AwaitChange()


def test_server_whose_node_belongs_to_an_earlier_session_creates_its_own() -> None:
    assert next_for_server(membership(member(1)), 2, SESSION, 5) == CreateNode()
    assert next_for_server(membership(member(2, session=69)), 2, SESSION, 5) == CreateNode()
    assert next_for_server(membership(member(2, session=69), lag=3), 2, SESSION, 5) == CreateNode()


def test_client_uses_the_endpoints_of_a_new_consistent_assignment() -> None:
    both = membership(member(1), member(2))
    endpoints = {("host1", 6001): OWNED[1], ("host2", 6002): OWNED[2]}
    assert next_for_client(both, NOT_APPLIED) == UseEndpoints(endpoints, 5)
    assert next_for_client(both, 5) == AwaitChange()


def test_client_endpoints_include_servers_without_partitions() -> None:
    connect = next_for_client(membership(member(1), member(2), member(3)), NOT_APPLIED)
    assert isinstance(connect, UseEndpoints)
    assert connect.endpoints["host3", 6003] == ()


@pytest.mark.parametrize(
    "unsettled",
    [membership(member(1), lag=1), membership(member(1))],
    ids=["lagging", "server missing"],
)
def test_client_keeps_its_endpoints_while_the_membership_is_inconsistent(
    unsettled: Membership,
) -> None:
    assert next_for_client(unsettled, 4) == AwaitChange()


def test_client_removes_its_endpoints_once_if_all_servers_left() -> None:
    assert next_for_client(membership(lag=1), 5) == UseEndpoints({}, NOT_APPLIED)
    assert next_for_client(membership(lag=1), NOT_APPLIED) == AwaitChange()


def test_newer_znode_of_server_replaces_older_znode() -> None:
    twice = membership(member(1, session=69, number=0), member(1, number=4))
    assert twice.servers()[1].port == 6004
    assert twice.own_nodes(1, SESSION) == ("s_0000000004",)
