"""The compare-and-set store of all shared metadata: interface, values, errors.

An asyncio interface of ZooKeeper that contains nothing specific to Waltz. `kazoo_store` implements
it over a real ZooKeeper; tests have an implementation in memory. Touches nothing itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from waltz.metadata.core.paths import ancestors

OnChange = Callable[[], None]
"""Called on the event loop, at most once per registration."""

ANY_VERSION = -1
"""As the version: set or delete the node regardless of its version."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    ``data`` is None if it was never set. ``version`` counts the writes of the data, ``cversion``
    the changes of the list of children. ``owner`` is the session of an ephemeral node, None for a
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


class SessionState(Enum):
    """The state of the session with the store.

    SUSPENDED: there is no connection; the session, and with it every ephemeral node, may still
    exist. LOST: the session has expired, its ephemeral nodes are deleted, and a new session with
    another id is being opened. CLOSED is final.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "session lost"
    CLOSED = "closed"


class SessionHealth:
    """The state of a store's session.

    ``unhealthy_since`` is the time on ``clock`` at which the state stopped being CONNECTED, None
    while it is CONNECTED. ``session_id`` is None before the first session and after closing; while
    the state is LOST it is that of the expired session.
    """

    __slots__ = ("_callbacks", "_clock", "session_id", "state", "unhealthy_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._callbacks: list[Callable[[SessionState], None]] = []
        self.state = SessionState.SUSPENDED
        self.session_id: int | None = None
        self.unhealthy_since: float | None = clock()

    def on_change(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``callback`` on the event loop at every change of state.

        Returns a function that removes the callback.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def enter(self, state: SessionState, session_id: int | None) -> None:
        """Record a change of state; only the store calls this."""
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
    """Another process wrote the node first. Nothing was written: read it again and repeat the
    decision.
    """

    def __init__(self, path: str, expected: int) -> None:
        super().__init__(f"the node {path} is no longer at version {expected} in ZooKeeper")
        self.path = path
        self.expected = expected


class StoreUnavailable(StoreError):
    """No answer. **A write may or may not have been executed**: read again and compare.

    A later read in the same session shows the final outcome, because the operations of a session
    are executed in order.
    """


class StoreConnectionLost(StoreUnavailable):
    """The connection broke before the answer. A write may have been executed."""


class SessionExpired(StoreUnavailable):
    """The session expired before the answer. A write may have been executed before that.

    The ephemeral nodes of the session are deleted in either case.
    """


class OperationTimedOut(StoreUnavailable):
    """No answer within the time limit. A write may have been executed, or may yet be."""


class StoreClosed(StoreError):
    """This process closed the store. No operation begun after that writes anything."""


class MetadataStore(Protocol):
    """One session's access to the store.

    Every operation may raise StoreUnavailable or StoreClosed besides the errors it names. An
    ``on_change`` is called once, as soon as the result may be outdated: the node changed, or the
    connection broke, so that a change could be missed. Registering an equal callable again for the
    same node before that does not add a call. Another reader may see the change before or after
    this call.
    """

    @property
    def health(self) -> SessionHealth:
        """The state of the session; always the same object."""

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """Return the node, or None if there is none; ``on_change`` works in both cases.

        It reports changes of the data and of the node's existence, not of the children.
        """

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """Return the children; ``on_change`` reports changes of their list. Raises NodeMissing."""

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path.

        With ``sequence``, ten digits that only grow under the same parent are appended to the
        path. An ephemeral node is deleted with the session. Raises NodeExists, NodeMissing (no
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
        """End the session, which deletes its ephemeral nodes. May be called repeatedly."""


OpenStore = Callable[[str, int], Awaitable[MetadataStore]]
"""Opens a session with the store at an address; the number is its timeout in milliseconds."""


async def create_ancestors(store: MetadataStore, path: str) -> None:
    """Create the missing nodes above ``path``, without data."""
    for ancestor in ancestors(path):
        if await store.get(ancestor) is None:
            try:
                await store.create(ancestor, None)
            except NodeExists:
                continue
