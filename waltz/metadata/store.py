"""The compare-and-set store of all shared metadata: interface, values, errors.

The interface has ZooKeeper's operations as coroutines, and nothing specific to Waltz. `kazoo_store`
implements it with a real ZooKeeper; tests have an implementation in memory. This module itself
touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from waltz.metadata.core.paths import ancestors

OnChange = Callable[[], None]
"""A callback for a changed node: called on the event loop, at most once per registration."""

ANY_VERSION = -1
"""Pass this as the version to set or delete a node whatever its version is."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node at the time of a read.

    ``data`` is None if no data were ever set. ``version`` counts the writes of the data, and begins
    with 0. ``cversion`` counts the changes of the list of children. ``owner`` is the id of the
    session that created an ephemeral node, None for a persistent node. ``changed_at`` is when the
    data were last written, in seconds since 1970 by ZooKeeper's clock; None if that is unknown.
    """

    data: bytes | None
    version: int
    cversion: int
    owner: int | None
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Children:
    """The names of a node's children, sorted, and the versions of the node at the same time."""

    names: tuple[str, ...]
    version: int
    cversion: int


class SessionState(Enum):
    """The state of the session with the store.

    SUSPENDED: there is no connection. The session and its ephemeral nodes may still exist. LOST:
    the session has expired, its ephemeral nodes are deleted, and a new session with another id is
    being opened. CLOSED: this process closed the store. No other state follows.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "session lost"
    CLOSED = "closed"


class SessionHealth:
    """The state of a store's session.

    ``unhealthy_since`` is the time on ``clock`` since which the state has not been CONNECTED, None
    while the state is CONNECTED. ``session_id`` is None before the first session and after closing.
    While the state is LOST, ``session_id`` is the id of the expired session.
    """

    __slots__ = ("_callbacks", "_clock", "session_id", "state", "unhealthy_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._callbacks: list[Callable[[SessionState], None]] = []
        self.state = SessionState.SUSPENDED
        self.session_id: int | None = None
        self.unhealthy_since: float | None = clock()

    def on_change(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``callback`` with the new state, on the event loop, at every change of the state.

        Returns a function that removes the callback.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def enter(self, state: SessionState, session_id: int | None) -> None:
        """Record a change of the state. Only the implementation of the store calls this."""
        self.state = state
        self.session_id = session_id
        if state is SessionState.CONNECTED:
            self.unhealthy_since = None
        elif self.unhealthy_since is None:
            self.unhealthy_since = self._clock()
        for callback in tuple(self._callbacks):
            callback(state)


class StoreError(Exception):
    """An operation of the store failed."""


class NodeMissing(StoreError):
    """No node exists at the path, or at its parent for a creation. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no node {path}, or no parent for it, in ZooKeeper")
        self.path = path


class NodeExists(StoreError):
    """A node already exists at the path. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the node {path} exists already in ZooKeeper")
        self.path = path


class NodeNotEmpty(StoreError):
    """The node has children and cannot be deleted. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the node {path} has children in ZooKeeper")
        self.path = path


class VersionConflict(StoreError):
    """Another process has written the node since it was read. This write was not executed.

    The caller should read the node again, and decide again what to write.
    """

    def __init__(self, path: str, expected: int) -> None:
        super().__init__(f"the node {path} is no longer at version {expected} in ZooKeeper")
        self.path = path
        self.expected = expected


class StoreUnavailable(StoreError):
    """The store gave no answer. **A write may or may not have been executed.**

    A later read in the same session shows whether a write was executed, because the store executes
    the operations of a session in order.
    """


class StoreConnectionLost(StoreUnavailable):
    """The connection was lost before the answer. A write may or may not have been executed."""


class SessionExpired(StoreUnavailable):
    """The session expired before the answer. A write may or may not have been executed.

    The ephemeral nodes of the session are deleted. If the write created such a node, it is deleted,
    too.
    """


class OperationTimedOut(StoreUnavailable):
    """The time limit passed before the answer. A write may be executed even after this error."""


class StoreClosed(StoreError):
    """This process has closed the store. A write that it sent before may have been executed."""


class MetadataStore(Protocol):
    """Access to the store, with one session at a time.

    If the session expires, the store opens a new one (see `SessionState`).

    Besides the errors that an operation names, it may raise StoreUnavailable or StoreClosed. If
    ZooKeeper refuses the operation, it may raise another StoreError, such as AccessDenied.

    An operation that gets ``on_change`` registers it. The store calls it once, as soon as the
    result of the operation may be out of date: when the node has changed, or when the connection
    was lost, because the store may then miss a change. If an equal ``on_change`` is already
    registered for the node, it is still called only once. Another process may read the changed node
    before ``on_change`` is called here.
    """

    @property
    def health(self) -> SessionHealth:
        """The state of the session. The store always returns the same object."""

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """Return the node, None if the node does not exist.

        ``on_change`` reports that the node was created, written or deleted. It does not report
        changes of the children.
        """

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """Return the children. ``on_change`` reports changes of their list. Raises NodeMissing."""

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        anyone_may_write: bool = False,
    ) -> str:
        """Create a node and return its path.

        With ``sequence``, the store appends a number of ten digits to the path; the number grows
        with each node that is created below the same parent. An ephemeral node is deleted when the
        session ends. With ``anyone_may_write``, processes without credentials may write the data of
        the node even if the store protects its nodes. Raises NodeExists, or NodeMissing if the
        parent does not exist.
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
        """End the session. Its ephemeral nodes are deleted. A second call does nothing."""


async def create_ancestors(store: MetadataStore, path: str) -> None:
    """Create the missing nodes above ``path``, without data."""
    for ancestor in ancestors(path):
        if await store.get(ancestor) is None:
            try:
                await store.create(ancestor, None)
            except NodeExists:
                continue
