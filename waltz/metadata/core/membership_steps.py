"""Decide the next step of a server or a client from the membership of the cluster. Pure.

`waltz.metadata.membership` reads a `Membership`, calls `next_for_server` or `next_for_client`,
performs the step, waits until the membership may have changed, and begins again. The step depends
only on the membership that was read, never on the event that caused the reading. Source:
spec/zookeeper.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment, ServerDescriptor

Endpoint = tuple[str, int]
"""A server's host, and its port for clients."""

NOT_APPLIED = -1
"""Used instead of the version of an assignment if no assignment has been applied."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server's znode: its name, the ZooKeeper session that owns it, and its data.

    ZooKeeper deletes the znode when the session ends. ``owner`` is None if the znode is persistent.
    """

    node_name: str
    owner: int | None
    descriptor: ServerDescriptor


@dataclass(frozen=True, slots=True)
class Membership:
    """The servers and the assignment of partitions to them.

    The list of servers and the assignment are from the same instant. The data of a server may be
    newer. One znode has the assignment as its data and the servers as its children. ``version`` is
    the version of its data. ``cversion`` grows with each change of the list of its children.
    ``assignment.cversion`` is the cversion of the list for which the assignment was computed.
    ``members`` are sorted by the names of their znodes.
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
        """Return the servers by id. Of two znodes of one server, the newer one is used.

        ``members`` ends with the newest znode: the names end with a number that grows.
        """
        return {m.descriptor.server_id: m.descriptor for m in self.members}

    def preferences(self) -> dict[int, tuple[int, ...]]:
        """Return each server's preferred partitions, by the server's id."""
        return {server: d.preferred for server, d in self.servers().items()}

    def own_nodes(self, server_id: int, session_id: int | None) -> tuple[str, ...]:
        """Return the names of the znodes of ``server_id`` that the session ``session_id`` owns."""
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
    """Create the server's znode, because the present session has none."""


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Compute a new assignment from the membership, and write it if the version is unchanged."""


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """Own exactly these partitions, a map from partition to its generation.

    ``version`` is the version of the assignment.
    """

    partitions: Mapping[int, int]
    version: int


@dataclass(frozen=True, slots=True)
class UseEndpoints:
    """Use exactly these servers, each for its partitions.

    ``version`` is the version of the assignment, NOT_APPLIED if there is no server.
    """

    endpoints: Mapping[Endpoint, tuple[OwnedPartition, ...]]
    version: int


def next_for_server(
    membership: Membership, server_id: int, session_id: int | None, applied_version: int
) -> AwaitChange | CreateNode | WriteAssignment | OwnPartitions:
    """Return the next step of a server.

    ``session_id`` is the server's present ZooKeeper session. ``applied_version`` is the version of
    the last `OwnPartitions` that the server performed, or NOT_APPLIED.
    """
    # A znode counts only if the present session owns it. A znode of an earlier session is deleted
    # when that session expires. A server that relied on this znode would disappear from the cluster
    # (test_server_whose_node_belongs_to_an_earlier_session_creates_its_own).
    if not membership.own_nodes(server_id, session_id):
        return CreateNode()
    # No server acts on an assignment that was computed for another list of servers. Only the server
    # with the smallest id computes the next assignment, so that few writes conflict. A conflict
    # does no harm, because the assignment is written by compare-and-set.
    if not membership.consistent:
        is_first = server_id == min(membership.servers())
        return WriteAssignment() if is_first else AwaitChange()
    if membership.version == applied_version:
        return AwaitChange()
    owned = dict(membership.assignment.servers.get(server_id, ()))
    return OwnPartitions(owned, membership.version)


def next_for_client(membership: Membership, applied_version: int) -> AwaitChange | UseEndpoints:
    """Return the next step of a client.

    ``applied_version`` is the version of the last `UseEndpoints` that the client performed, or
    NOT_APPLIED.
    """
    servers, owned = membership.servers(), membership.assignment.servers
    if not servers:
        if applied_version == NOT_APPLIED:
            return AwaitChange()  # The client has no endpoints to drop.
        return UseEndpoints({}, NOT_APPLIED)
    if membership.version == applied_version:
        return AwaitChange()
    # If the assignment was computed for another list of servers, or names a server without a znode,
    # the client keeps its endpoints until the next change. Most endpoints stay valid. A wrong one
    # does no harm: a server answers NOT_READY if a client mounts a partition that the server does
    # not own.
    if not membership.consistent:
        return AwaitChange()
    if not owned.keys() <= servers.keys():
        return AwaitChange()
    endpoints = {(d.host, d.port): owned.get(server, ()) for server, d in servers.items()}
    return UseEndpoints(endpoints, membership.version)
