"""The compare-and-set store that everything shared is kept in: interface, values, errors.

An asyncio view of ZooKeeper, with nothing of Waltz in it. ``kazoo_store`` talks to the real one,
``memory`` lives inside the process; both keep to what is said here. No effects of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from waltz.metadata.core.paths import ancestors

OnChange = Callable[[], None]
"""Called on the event loop, at most once per registration."""

ANY_VERSION = -1
"""Given as the version, sets or deletes whatever is there."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    ``data`` None means "not set". ``version`` counts writes of the data, ``cversion`` changes of
    the child list. ``owner`` is the session that an ephemeral node belongs to, None for a
    persistent one.
    """

    data: bytes | None
    version: int
    cversion: int
    owner: int | None


@dataclass(frozen=True, slots=True)
class Children:
    """The names of a node's children, sorted, with the versions the node itself had then."""

    names: tuple[str, ...]
    version: int
    cversion: int


class Connection(Enum):
    """The state of the session with the store.

    SUSPENDED: the store cannot be reached just now; the session, and with it every ephemeral node,
    may outlast that. LOST: the session is over, its ephemeral nodes are gone, and a new one with
    another id is being sought. CLOSED is final.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "session lost"
    CLOSED = "closed"


class SessionHealth:
    """The state of a store's session, as its users see it.

    ``unhealthy_since`` is when the connection stopped being CONNECTED, on the clock handed in, or
    None while it is. ``session_id`` is None before the first session and after closing; while
    LOST it is still the old one.
    """

    __slots__ = ("_callbacks", "_clock", "connection", "session_id", "unhealthy_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._callbacks: list[Callable[[Connection], None]] = []
        self.connection = Connection.SUSPENDED
        self.session_id: int | None = None
        self.unhealthy_since: float | None = clock()

    def on_change(self, callback: Callable[[Connection], None]) -> Callable[[], None]:
        """Have ``callback`` called on the event loop at every change of state.

        Returns a function that ends this.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def enter(self, connection: Connection, session_id: int | None) -> None:
        """Record a change of state; for the store alone."""
        self.connection = connection
        self.session_id = session_id
        if connection is Connection.CONNECTED:
            self.unhealthy_since = None
        elif self.unhealthy_since is None:
            self.unhealthy_since = self._clock()
        for callback in tuple(self._callbacks):
            callback(connection)


class StoreError(Exception):
    """The store did not do what it was asked."""


class NodeMissing(StoreError):
    """There is no node at the path, or for a creation none at its parent. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no node {path}, or no parent for it, in ZooKeeper")
        self.path = path


class NodeExists(StoreError):
    """There is a node at the path already. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the node {path} exists already in ZooKeeper")
        self.path = path


class NodeNotEmpty(StoreError):
    """The node has children, so that it cannot be deleted. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the node {path} has children in ZooKeeper")
        self.path = path


class VersionConflict(StoreError):
    """Somebody else wrote the node first. Nothing was written; read it again and decide anew."""

    def __init__(self, path: str, expected: int) -> None:
        super().__init__(f"the node {path} is no longer at version {expected} in ZooKeeper")
        self.path = path
        self.expected = expected


class StoreUnavailable(StoreError):
    """No answer. **A write may or may not have happened**: read again and compare.

    What is read afterwards in the same session shows the final outcome: a session's operations are
    carried out in order.
    """


class ConnectionLost(StoreUnavailable):
    """The connection broke before the answer came. A write may have happened."""


class SessionExpired(StoreUnavailable):
    """The session ended before the answer came. A write may have happened before that.

    Ephemeral nodes of the session are gone, whatever became of the write.
    """


class OperationTimedOut(StoreUnavailable):
    """No answer within the time limit. A write may have happened, or may still happen."""


class StoreClosed(StoreError):
    """The store was closed, here. Nothing was written by an operation begun after that."""


class MetadataStore(Protocol):
    """One session's access to the store.

    Every operation may raise StoreUnavailable or StoreClosed beside what it names. An ``on_change``
    is called once, as soon as what was read may no longer be true: it changed, or the connection
    broke, so that a change could go unnoticed. It is then used up. Registering an equal callable
    again for the same node before that does not add a call. Whether it is called before or after
    another reader sees the change is left open.
    """

    @property
    def health(self) -> SessionHealth:
        """The state of the session; always the same object."""

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """Return the node, or None if there is none; ``on_change`` works for both.

        It is for the data, the existence, and nothing about the children.
        """

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """Return the children; ``on_change`` is for their list. Raises NodeMissing."""

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path.

        With ``sequence``, ten digits that only grow under the same parent are appended to the
        path. An ephemeral node disappears with the session. Raises NodeExists, NodeMissing (no
        parent).
        """

    async def set(self, path: str, data: bytes, version: int) -> int:
        """Replace the data if the node is at ``version``; return the new version.

        Raises VersionConflict, NodeMissing.
        """

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node if it is at ``version``.

        Raises VersionConflict, NodeMissing, NodeNotEmpty.
        """

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes. May be called again."""


async def create_ancestors(store: MetadataStore, path: str) -> None:
    """Create those nodes above ``path`` that are missing, without data."""
    for ancestor in ancestors(path):
        if await store.get(ancestor) is None:
            try:
                await store.create(ancestor, None)
            except NodeExists:
                continue
