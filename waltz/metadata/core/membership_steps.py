"""The next step of a server or a client, given the membership of the cluster. Pure.

The shell reads a `Membership`, calls `next_for_server` or `next_for_client`, and performs the step;
then it waits until the membership may have changed, and repeats this. The step depends only on the
membership that was read, never on the event that caused the reading. Source: spec/zookeeper.md
section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment, ServerDescriptor

Endpoint = tuple[str, int]
"""A server's host and client-facing port."""

NOT_APPLIED = -1
"""Placeholder for an assignment's version: no assignment has been applied."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server's znode: its name among the children, the session that owns it, its data."""

    node_name: str
    owner: int | None
    descriptor: ServerDescriptor


@dataclass(frozen=True, slots=True)
class Membership:
    """The servers and the assignment of partitions to them, read as of one instant.

    ``version`` is the assignment's version. ``cversion`` counts the changes of the list of servers;
    the assignment is up to date exactly if it contains the same number. ``members`` are sorted by
    node name.
    """

    assignment: PartitionAssignment
    version: int
    cversion: int
    members: tuple[Member, ...]

    @property
    def consistent(self) -> bool:
        """Whether the assignment was computed for the present members."""
        return self.assignment.cversion == self.cversion

    def servers(self) -> dict[int, ServerDescriptor]:
        """Return the servers by id. If a server has two nodes, the newer one is used."""
        return {m.descriptor.server_id: m.descriptor for m in self.members}

    def preferences(self) -> dict[int, tuple[int, ...]]:
        """Return each server's preferred partitions, as `policy.assign` takes them."""
        return {server: d.preferred for server, d in self.servers().items()}

    def own_nodes(self, server_id: int, session_id: int | None) -> tuple[str, ...]:
        """Return the names of the nodes that this session created for ``server_id``."""
        return tuple(
            m.node_name
            for m in self.members
            if m.descriptor.server_id == server_id and m.owner == session_id
        )


@dataclass(frozen=True, slots=True)
class AwaitChange:
    """Do nothing until the membership changes."""


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Create the server's node: it never existed, or was deleted with its session."""


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Compute a new assignment from the membership and write it with the version read."""


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """Own these partitions, each at its generation, and no others; ``applied`` is the version."""

    partitions: Mapping[int, int]
    applied: int


@dataclass(frozen=True, slots=True)
class UseEndpoints:
    """Use these endpoints for these partitions, and no others; ``applied`` is the version."""

    endpoints: Mapping[Endpoint, tuple[OwnedPartition, ...]]
    applied: int


def next_for_server(
    membership: Membership, server_id: int, session_id: int | None, applied: int
) -> AwaitChange | CreateNode | WriteAssignment | OwnPartitions:
    """Return the next step of a server.

    ``applied`` is the version of its last `OwnPartitions`, NOT_APPLIED before the first.
    """
    # A node counts only if this session owns it. One that an earlier session left is deleted when
    # that session expires: a server that relied on it would then disappear from the cluster
    # (test_server_whose_node_belongs_to_an_earlier_session_creates_its_own).
    if not membership.own_nodes(server_id, session_id):
        return CreateNode()
    # No server acts on an assignment that does not account for the present members. One server
    # computes the next, so that few writes conflict; the compare-and-set makes conflicts harmless.
    if not membership.consistent:
        is_first = server_id == min(membership.servers())
        return WriteAssignment() if is_first else AwaitChange()
    if membership.version == applied:
        return AwaitChange()
    owned = dict(membership.assignment.servers.get(server_id, ()))
    return OwnPartitions(owned, membership.version)


def next_for_client(membership: Membership, applied: int) -> AwaitChange | UseEndpoints:
    """Return the next step of a client.

    ``applied`` is the version of its last `UseEndpoints`, NOT_APPLIED before the first.
    """
    servers, owned = membership.servers(), membership.assignment.servers
    if not servers:
        return AwaitChange() if applied == NOT_APPLIED else UseEndpoints({}, NOT_APPLIED)
    # While the assignment does not account for the present members, or names a server that has no
    # node, the client keeps its endpoints: most of them stay valid, and a server answers a mount of
    # a partition that it does not own with NOT_READY.
    if not membership.consistent or membership.version == applied:
        return AwaitChange()
    if not owned.keys() <= servers.keys():
        return AwaitChange()
    endpoints = {(d.host, d.port): owned.get(server, ()) for server, d in servers.items()}
    return UseEndpoints(endpoints, membership.version)
