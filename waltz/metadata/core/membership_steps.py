"""What a server or a client does next, given what it sees of the membership.

Pure. The shell reads a View, asks here, and does what it is told; then it waits until the view may
have changed and begins again. Nothing depends on which event it was. Source: spec/zookeeper.md
section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment, ServerDescriptor

Endpoint = tuple[str, int]
"""A server's host and client-facing port."""

NOTHING = -1
"""In place of an assignment's version: none has been applied."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server's node: its name among the children, the session that owns it, its data."""

    node_name: str
    owner: int | None
    descriptor: ServerDescriptor


@dataclass(frozen=True, slots=True)
class View:
    """The membership at one instant: the assignment and its version, and who is there.

    ``cversion`` counts the changes of who is there. The assignment takes account of the last of
    them exactly when it carries the same number. ``members`` are sorted by node name.
    """

    assignment: PartitionAssignment
    version: int
    cversion: int
    members: tuple[Member, ...]

    @property
    def consistent(self) -> bool:
        """Whether the assignment is for the members that are there."""
        return self.assignment.cversion == self.cversion

    def servers(self) -> dict[int, ServerDescriptor]:
        """Return the servers by id. Of two nodes of one server the newer one counts."""
        return {m.descriptor.server_id: m.descriptor for m in self.members}

    def preferences(self) -> dict[int, tuple[int, ...]]:
        """Return what each server prefers, as the policy wants it."""
        return {server: d.preferred for server, d in self.servers().items()}

    def own_nodes(self, server_id: int, session_id: int | None) -> tuple[str, ...]:
        """Return the names of the nodes that this session has made for ``server_id``."""
        return tuple(
            m.node_name
            for m in self.members
            if m.descriptor.server_id == server_id and m.owner == session_id
        )


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something changes."""


@dataclass(frozen=True, slots=True)
class Join:
    """Create the own node: it was never there, or went with a session."""


@dataclass(frozen=True, slots=True)
class Reassign:
    """Compute a new assignment from the view and write it with the view's version."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Own these partitions, each at its generation, and no others; then ``applied`` is so."""

    partitions: Mapping[int, int]
    applied: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Find the partitions at these endpoints, and nowhere else; then ``applied`` is so."""

    endpoints: Mapping[Endpoint, tuple[OwnedPartition, ...]]
    applied: int


def next_for_server(
    view: View, server_id: int, session_id: int | None, applied: int
) -> Wait | Join | Reassign | Serve:
    """Return what the server does next; ``applied`` is of its last Serve, at first NOTHING.

    The server with the smallest id is the one that computes assignments.
    """
    if not view.own_nodes(server_id, session_id):
        return Join()
    if not view.consistent:
        return Reassign() if server_id == min(view.servers()) else Wait()
    if view.version == applied:
        return Wait()
    return Serve(dict(view.assignment.servers.get(server_id, ())), view.version)


def next_for_client(view: View, applied: int) -> Wait | Connect:
    """Return what a client does next; ``applied`` is of its last Connect, at first NOTHING.

    While the assignment lags behind the membership, or names a server that is not there, what the
    client knows stays as it is; only when no server is left it forgets them all.
    """
    servers, owned = view.servers(), view.assignment.servers
    if not servers:
        return Wait() if applied == NOTHING else Connect({}, NOTHING)
    if not view.consistent or view.version == applied or not owned.keys() <= servers.keys():
        return Wait()
    endpoints = {(d.host, d.port): owned.get(server, ()) for server, d in servers.items()}
    return Connect(endpoints, view.version)
