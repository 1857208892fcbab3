"""A compare-and-set store inside the process, for tests and for simulations of whole clusters.

Touches the event loop only; the same calls give the same results. One `MemoryZooKeeper` is the
ensemble; each `connect` returns a client with its own session. Tests cause the faults: a suspended
connection, an expired session, a lost answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from waltz.metadata.store import (
    ANY_VERSION,
    Children,
    Node,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    OnChange,
    SessionExpired,
    SessionHealth,
    SessionState,
    StoreClosed,
    StoreConnectionLost,
    StoreError,
    VersionConflict,
)

Pause = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Stored:
    data: bytes | None
    owner: int | None
    version: int = 0
    children: set[str] = field(default_factory=set)
    children_ever: int = 0

    def cversion(self) -> int:
        # Every creation of a child was one change, and every deletion another.
        return 2 * self.children_ever - len(self.children)


class MemoryZooKeeper:
    """The tree of nodes and the sessions of a ZooKeeper ensemble."""

    def __init__(self) -> None:
        self._nodes = {"/": _Stored(None, None)}
        self._last_session = 0
        self._clients: list[MemoryStore] = []

    def connect(
        self, *, clock: Callable[[], float] = lambda: 0.0, pause: Pause | None = None
    ) -> MemoryStore:
        """Return a client with a new session.

        ``pause`` is awaited at the start of every operation, so that other tasks run between two
        operations of one; by default for one iteration of the event loop.
        """
        client = MemoryStore(self, clock, pause or _one_turn)
        self._clients.append(client)
        client.health.enter(SessionState.CONNECTED, self._new_session())
        return client

    def dump(self) -> dict[str, Node]:
        """Return every node but "/", by path, sorted."""
        return {p: self._view(n) for p, n in sorted(self._nodes.items()) if p != "/"}

    def suspend(self, client: MemoryStore) -> None:
        """Suspend the client: its operations raise StoreConnectionLost, its session stays valid."""
        client._drop_watches()
        client.health.enter(SessionState.SUSPENDED, client.health.session_id)

    def resume(self, client: MemoryStore) -> None:
        """Reconnect the client: with its session, or with a new one if that has expired."""
        if client._expired and client.health.state is not SessionState.LOST:
            client.health.enter(SessionState.LOST, client.health.session_id)
        session_id = self._new_session() if client._expired else client.health.session_id
        client._expired = False
        client.health.enter(SessionState.CONNECTED, session_id)

    def expire(self, client: MemoryStore) -> None:
        """End the client's session; a suspended client sees it when it reconnects."""
        assert client.health.session_id is not None
        client._expired = True
        self._end_session(client.health.session_id)
        client._drop_watches()
        if client.health.state is SessionState.CONNECTED:
            client.health.enter(SessionState.LOST, client.health.session_id)

    def _new_session(self) -> int:
        self._last_session += 1
        return self._last_session

    def _end_session(self, session_id: int) -> None:
        for path in sorted(p for p, node in self._nodes.items() if node.owner == session_id):
            self._delete(path, ANY_VERSION)

    def _get(self, path: str) -> Node | None:
        node = self._nodes.get(path)
        return None if node is None else self._view(node)

    def _children(self, path: str) -> Children:
        node = self._find(path)
        return Children(tuple(sorted(node.children)), node.version, node.cversion())

    def _create(self, path: str, data: bytes | None, owner: int | None, sequence: bool) -> str:
        parent_path, _, _ = path.rpartition("/")
        parent = self._nodes.get(parent_path or "/")
        if parent is None:
            raise NodeMissing(path)
        if parent.owner is not None:
            raise StoreError(f"{parent_path} is ephemeral and cannot have children")
        if sequence:
            path += f"{parent.children_ever:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        self._nodes[path] = _Stored(data, owner)
        parent.children.add(path.rpartition("/")[2])
        parent.children_ever += 1
        self._fire(path, parent_path or "/")
        return path

    def _set(self, path: str, data: bytes, version: int) -> int:
        node = self._find(path)
        if version not in (ANY_VERSION, node.version):
            raise VersionConflict(path, version)
        node.data = data
        node.version += 1
        self._fire(path)
        return node.version

    def _delete(self, path: str, version: int) -> None:
        node = self._find(path)
        if version not in (ANY_VERSION, node.version):
            raise VersionConflict(path, version)
        if node.children:
            raise NodeNotEmpty(path)
        del self._nodes[path]
        parent_path, _, name = path.rpartition("/")
        self._nodes[parent_path or "/"].children.remove(name)
        self._fire(path, path, parent_path or "/")

    def _fire(self, changed: str, *child_lists: str) -> None:
        for client in self._clients:
            client._notify(changed, child_lists)

    def _find(self, path: str) -> _Stored:
        node = self._nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        return node

    def _view(self, node: _Stored) -> Node:
        return Node(node.data, node.version, node.cversion(), node.owner)


class MemoryStore:
    """One session with a MemoryZooKeeper; implements MetadataStore. Made by ``connect``."""

    def __init__(
        self, zookeeper: MemoryZooKeeper, clock: Callable[[], float], pause: Pause
    ) -> None:
        self._zookeeper = zookeeper
        self._pause = pause
        self._health = SessionHealth(clock)
        # Callables by path, each kept once, in the order of their registration.
        self._data_watches: dict[str, dict[OnChange, None]] = {}
        self._child_watches: dict[str, dict[OnChange, None]] = {}
        self._expired = False
        self._answers_to_lose = 0

    def lose_next_answer(self) -> None:
        """Execute the next operation but raise StoreConnectionLost instead of answering."""
        self._answers_to_lose += 1

    @property
    def health(self) -> SessionHealth:
        """See MetadataStore."""
        return self._health

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """See MetadataStore."""
        await self._begin(path)
        node = self._zookeeper._get(path)
        self._finish(path)
        if on_change is not None:
            self._data_watches.setdefault(path, {})[on_change] = None
        return node

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """See MetadataStore."""
        await self._begin(path)
        children = self._zookeeper._children(path)
        self._finish(path)
        if on_change is not None:
            self._child_watches.setdefault(path, {})[on_change] = None
        return children

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """See MetadataStore."""
        await self._begin(path)
        owner = self._health.session_id if ephemeral else None
        created = self._zookeeper._create(path, data, owner, sequence)
        self._finish(path)
        return created

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See MetadataStore."""
        await self._begin(path)
        new_version = self._zookeeper._set(path, data, version)
        self._finish(path)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        await self._begin(path)
        self._zookeeper._delete(path, version)
        self._finish(path)

    async def close(self) -> None:
        """See MetadataStore."""
        if self._health.state is SessionState.CLOSED:
            return
        session_id = self._health.session_id
        self._data_watches.clear()
        self._child_watches.clear()
        self._health.enter(SessionState.CLOSED, None)
        self._zookeeper._clients.remove(self)
        if session_id is not None and not self._expired:
            self._zookeeper._end_session(session_id)

    async def _begin(self, path: str) -> None:
        if self._health.state is not SessionState.CLOSED:
            await self._pause()
        match self._health.state:
            case SessionState.CLOSED:
                raise StoreClosed("the connection to ZooKeeper was closed")
            case SessionState.SUSPENDED:
                raise StoreConnectionLost(f"the connection to ZooKeeper broke at {path}")
            case SessionState.LOST:
                raise SessionExpired(f"the ZooKeeper session ended during an operation on {path}")
            case SessionState.CONNECTED:
                return

    def _finish(self, path: str) -> None:
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            self._zookeeper.suspend(self)
            self._zookeeper.resume(self)
            raise StoreConnectionLost(f"the connection to ZooKeeper broke at {path}")

    def _notify(self, changed: str, child_lists: tuple[str, ...]) -> None:
        due = list(self._data_watches.pop(changed, ()))
        for path in child_lists:
            due += self._child_watches.pop(path, ())
        self._call_soon(due)

    def _drop_watches(self) -> None:
        watches = (*self._data_watches.values(), *self._child_watches.values())
        self._data_watches, self._child_watches = {}, {}
        self._call_soon([on_change for registered in watches for on_change in registered])

    def _call_soon(self, due: list[OnChange]) -> None:
        for on_change in due:
            asyncio.get_running_loop().call_soon(on_change)


async def _one_turn() -> None:
    await asyncio.sleep(0)
