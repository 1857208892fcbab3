"""What a server and a client do next, given what they see."""

from __future__ import annotations

import pytest

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment, ServerDescriptor
from waltz.metadata.core.membership_steps import (
    NOTHING,
    Connect,
    Join,
    Member,
    Reassign,
    Serve,
    View,
    Wait,
    next_for_client,
    next_for_server,
)

SESSION = 70
OWNED = {1: (OwnedPartition(0, 3),), 2: (OwnedPartition(1, 1), OwnedPartition(2, 1))}


def member(server_id: int, *, session: int = SESSION, number: int | None = None) -> Member:
    number = server_id if number is None else number
    descriptor = ServerDescriptor(server_id, f"host{server_id}", 6000 + number, (server_id,))
    return Member(f"s_{number:010d}", session, descriptor)


def view(*members: Member, lag: int = 0) -> View:
    """``lag``: how many membership changes the assignment does not take account of."""
    return View(PartitionAssignment(9, 3, OWNED), 5, 9 + lag, members)


def test_server_serves_what_a_new_consistent_assignment_gives_it() -> None:
    both = view(member(1), member(2))
    assert next_for_server(both, 2, SESSION, NOTHING) == Serve({1: 1, 2: 1}, 5)
    assert next_for_server(both, 2, SESSION, 4) == Serve({1: 1, 2: 1}, 5)
    assert next_for_server(both, 2, SESSION, 5) == Wait()


def test_server_serves_nothing_when_the_assignment_does_not_name_it() -> None:
    assert next_for_server(view(member(1), member(3)), 3, SESSION, 4) == Serve({}, 5)


def test_server_with_the_smallest_id_reassigns() -> None:
    lagging = view(member(2), member(3), lag=1)
    assert next_for_server(lagging, 2, SESSION, 5) == Reassign()
    assert next_for_server(lagging, 3, SESSION, 5) == Wait()


def test_server_joins_when_its_node_is_missing_or_of_an_old_session() -> None:
    assert next_for_server(view(member(1)), 2, SESSION, 5) == Join()
    assert next_for_server(view(member(2, session=69)), 2, SESSION, 5) == Join()
    assert next_for_server(view(member(2, session=69), lag=3), 2, SESSION, 5) == Join()


def test_client_connects_to_a_new_consistent_assignment() -> None:
    both = view(member(1), member(2))
    endpoints = {("host1", 6001): OWNED[1], ("host2", 6002): OWNED[2]}
    assert next_for_client(both, NOTHING) == Connect(endpoints, 5)
    assert next_for_client(both, 5) == Wait()


def test_client_knows_of_servers_without_partitions() -> None:
    connect = next_for_client(view(member(1), member(2), member(3)), NOTHING)
    assert isinstance(connect, Connect)
    assert connect.endpoints["host3", 6003] == ()


@pytest.mark.parametrize(
    "unsettled", [view(member(1), lag=1), view(member(1))], ids=["lagging", "server missing"]
)
def test_client_keeps_what_it_knows_while_the_view_is_unsettled(unsettled: View) -> None:
    assert next_for_client(unsettled, 4) == Wait()


def test_client_forgets_all_when_the_last_server_has_gone_once() -> None:
    assert next_for_client(view(lag=1), 5) == Connect({}, NOTHING)
    assert next_for_client(view(lag=1), NOTHING) == Wait()


def test_of_two_nodes_of_one_server_the_newer_counts() -> None:
    twice = view(member(1, session=69, number=0), member(1, number=4))
    assert twice.servers()[1].port == 6004
    assert twice.own_nodes(1, SESSION) == ("s_0000000004",)
