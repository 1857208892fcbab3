"""The nodes of a ZooKeeper in memory, without sessions and connections. Touches nothing.

`waltz.testing.zookeeper` adds the sessions, and calls the watches of the nodes that change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from waltz.metadata.store import (
    ANY_VERSION,
    Children,
    Node,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    StoreError,
    VersionConflict,
)

OnTreeChange = Callable[[str, tuple[str, ...]], None]
"""Called after a change, with the path of the node, and the nodes whose child watches fire."""


@dataclass(slots=True)
class Znode:
    """A node.

    ``owner`` is the session of an ephemeral node, None for any other. ``children_ever`` is the
    number of children that were created, including those that were deleted since.
    """

    data: bytes | None
    owner: int | None
    version: int = 0
    children: set[str] = field(default_factory=set)
    children_ever: int = 0

    def view(self) -> Node:
        """Return the node as a client reads it."""
        return Node(self.data, self.version, self._cversion(), self.owner)

    def child_view(self) -> Children:
        """Return the children as a client reads them."""
        return Children(tuple(sorted(self.children)), self.version, self._cversion())

    def _cversion(self) -> int:
        # ZooKeeper counts every creation and every deletion of a child: created + deleted, where
        # deleted = created - present. So the sum is 2 * created - present.
        return 2 * self.children_ever - len(self.children)


@dataclass(slots=True)
class LaggingFollower:
    """A ZooKeeper server that is behind: its nodes, and the changes that it has not seen.

    Each change has the two arguments of `OnTreeChange`.
    """

    nodes: dict[str, Znode]
    missed: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


class ZnodeTree:
    """The nodes by path. Each change calls ``on_change``."""

    def __init__(self, on_change: OnTreeChange) -> None:
        self.nodes = {"/": Znode(data=None, owner=None)}
        self._on_change = on_change

    def create(self, path: str, data: bytes | None, owner: int | None, sequence: bool) -> str:
        """Create a node of the session ``owner``, if any; see `MetadataStore.create`."""
        parent_path = path.rpartition("/")[0] or "/"
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise NodeMissing(path)
        if parent.owner is not None:
            raise StoreError(f"{parent_path} is ephemeral and cannot have children")
        if sequence:
            path += f"{parent.children_ever:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = Znode(data, owner)
        parent.children.add(path.rpartition("/")[2])
        parent.children_ever += 1
        self._on_change(path, (parent_path,))
        return path

    def set(self, path: str, data: bytes, version: int) -> int:
        """Replace the data of a node; see `MetadataStore.set`."""
        node = self._at_version(path, version)
        node.data = data
        node.version += 1
        self._on_change(path, ())
        return node.version

    def delete(self, path: str, version: int) -> None:
        """Delete a node; see `MetadataStore.delete`."""
        if self._at_version(path, version).children:
            raise NodeNotEmpty(path)
        del self.nodes[path]
        parent_path, _, name = path.rpartition("/")
        self.nodes[parent_path or "/"].children.remove(name)
        # A deletion also fires the child watches of the deleted node.
        self._on_change(path, (path, parent_path or "/"))

    def delete_owned(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session."""
        for path in sorted(p for p, node in self.nodes.items() if node.owner == session_id):
            self.delete(path, ANY_VERSION)

    def copied_nodes(self) -> dict[str, Znode]:
        """Return a copy of all nodes."""
        return {p: replace(n, children=set(n.children)) for p, n in self.nodes.items()}

    def _at_version(self, path: str, version: int) -> Znode:
        """Return a node. Raises NodeMissing, or VersionConflict if it has another version."""
        node = self.nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        if version not in (ANY_VERSION, node.version):
            raise VersionConflict(path, version)
        return node
