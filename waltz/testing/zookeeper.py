"""A ZooKeeper in memory: the metadata store of clusters in one process.

One `MemoryZooKeeper` is the ensemble. Each `connect` returns a client with its own session, which
belongs to one event loop. The same calls give the same results. Tests cause the faults: suspended
or expired sessions, lost answers, late watches, outdated reads. Touches event loops and threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from waltz.metadata.store import (
    ANY_VERSION,
    Children,
    Node,
    NodeMissing,
    OnChange,
    OperationTimedOut,
    SessionExpired,
    SessionHealth,
    SessionState,
    StoreClosed,
    StoreConnectionLost,
)
from waltz.testing.znodes import LaggingFollower, Znode, ZnodeTree

Pause = Callable[[], Awaitable[None]]  # See `MemoryZooKeeper.connect`.


class MemoryZooKeeper:
    """The tree of nodes and the sessions of a ZooKeeper ensemble.

    Every watch is called ``watch_delay`` seconds late. The methods may be called on any thread.
    """

    def __init__(self) -> None:
        self.watch_delay = 0.0
        self._lock = threading.RLock()
        self._tree = ZnodeTree(self._fire)
        self._last_session_id = 0
        self._clients: list[MemoryStore] = []
        self._answering = True  # False between `stop_answering` and `resume_answering`.

    def connect(
        self, *, clock: Callable[[], float] = lambda: 0.0, pause: Pause | None = None
    ) -> MemoryStore:
        """Return a client with a new session.

        ``clock`` is that of its `SessionHealth`. ``pause`` is awaited at the start of every
        operation, so that other tasks run between two operations of the same task. By default, it
        lasts one iteration of the event loop.
        """
        client = MemoryStore(self, clock, pause or _one_turn)
        with self._lock:
            self._clients.append(client)
            client.health.enter(SessionState.CONNECTED, self._new_session_id())
        return client

    def dump(self) -> dict[str, Node]:
        """Return every node except "/" by its path, in the order of the paths."""
        with self._lock:
            return {p: n.view() for p, n in sorted(self._tree.nodes.items()) if p != "/"}

    def clear(self) -> None:
        """Delete every node except "/"."""
        with self._lock:
            for path in sorted(self._tree.nodes.keys() - {"/"}, reverse=True):  # Children first.
                self._tree.delete(path, ANY_VERSION)

    def suspend(self, client: MemoryStore) -> None:
        """Suspend the client: its operations raise StoreConnectionLost, its session stays valid.

        All its watches are called and removed: from now on the client could miss changes.
        """
        with self._lock:
            client._call_and_remove_all_watches()
        client._enter(SessionState.SUSPENDED, client.health.session_id)

    def resume(self, client: MemoryStore) -> None:
        """Reconnect the client, with a new session if its session has expired."""
        if client._expired and client.health.state is not SessionState.LOST:
            client._enter(SessionState.LOST, client.health.session_id)
        with self._lock:
            session_id = self._new_session_id() if client._expired else client.health.session_id
            client._expired = False
        client._enter(SessionState.CONNECTED, session_id)

    def expire(self, client: MemoryStore) -> None:
        """End the client's session. A suspended client notices this when it reconnects.

        All watches of the client are called and removed.
        """
        session_id = client.health.session_id
        assert session_id is not None
        with self._lock:
            client._expired = True
            self.end_session(session_id)
            client._call_and_remove_all_watches()
        if client.health.state is SessionState.CONNECTED:
            client._enter(SessionState.LOST, session_id)

    def abandon(self, client: MemoryStore, *, expire: bool = True) -> None:
        """End the client as the death of its process does: no watch is called any more.

        With ``expire``, its session ends at once, with the ephemeral nodes. Otherwise both stay.
        """
        with self._lock:
            session_id = client._forget()
            if expire and session_id is not None and not client._expired:
                self.end_session(session_id)

    def lag(self, client: MemoryStore) -> None:
        """Serve the client's reads from its *follower*, a server that lags until `catch_up`.

        As in ZooKeeper, a write of the client brings its follower up to date, too.
        """
        with self._lock:
            client._follower = LaggingFollower(self._tree.copied_nodes())

    def catch_up(self, client: MemoryStore) -> None:
        """Bring the client's follower up to date; call the watches of the changes it has missed."""
        with self._lock:
            follower, client._follower = client._follower, None
            if follower is not None:
                for changed, child_lists in follower.missed:
                    client._notify(changed, child_lists)

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session, such as that of an abandoned client."""
        with self._lock:
            self._tree.delete_owned(session_id)

    def stop_answering(self) -> None:
        """Let every operation wait. After its ``operation_timeout`` it raises OperationTimedOut."""
        with self._lock:
            self._answering = False

    def resume_answering(self) -> None:
        """Answer the operations that wait, and all later ones."""
        with self._lock:
            self._answering = True
            for client in self._clients:
                client._wake()

    def _new_session_id(self) -> int:
        self._last_session_id += 1
        return self._last_session_id

    def _fire(self, changed: str, child_lists: tuple[str, ...]) -> None:
        """Notify every client of a change; see `waltz.testing.znodes.OnTreeChange`."""
        for client in self._clients:
            client._notify(changed, child_lists)


class MemoryStore:
    """A client of a MemoryZooKeeper, with one session at a time; implements MetadataStore.

    `MemoryZooKeeper.connect` creates it. An operation without an answer raises OperationTimedOut
    after ``operation_timeout`` seconds.
    """

    def __init__(
        self, zookeeper: MemoryZooKeeper, clock: Callable[[], float], pause: Pause
    ) -> None:
        self.operation_timeout = 10.0
        self._zookeeper = zookeeper
        self._pause = pause
        self._health = SessionHealth(clock)
        # The watches by path. Each is kept once, and called in the order of registration.
        self._data_watches: dict[str, dict[OnChange, None]] = {}
        self._child_watches: dict[str, dict[OnChange, None]] = {}
        self._expired = False  # Whether the session has ended, though the client may not know it.
        self._answers_to_lose = 0  # Of the next operations; see `lose_next_answer`.
        self._writes_to_lose: deque[bool] = deque()
        """The next writes that get no answer; True for a write that is executed."""
        self._follower: LaggingFollower | None = None  # Set between `lag` and `catch_up`.
        self._waiting: list[asyncio.Future[None]] = []  # Operations after `stop_answering`.
        self._loop = _running_loop()

    def lose_next_answer(self) -> None:
        """Execute the next operation but raise StoreConnectionLost instead of answering."""
        self._answers_to_lose += 1

    def lose_next_write(self, *, executed: bool) -> None:
        """Raise StoreConnectionLost for the next write, executed only if ``executed`` is true."""
        self._writes_to_lose.append(executed)

    @property
    def health(self) -> SessionHealth:
        """See MetadataStore."""
        return self._health

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """See MetadataStore."""
        await self._begin(path)
        with self._zookeeper._lock:
            node = self._nodes.get(path)
            read = None if node is None else node.view()
            self._finish(path)
            if on_change is not None:
                self._data_watches.setdefault(path, {})[on_change] = None
        return read

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """See MetadataStore."""
        await self._begin(path)
        with self._zookeeper._lock:
            node = self._nodes.get(path)
            if node is None:
                raise NodeMissing(path)
            read = node.child_view()
            self._finish(path)
            if on_change is not None:
                self._child_watches.setdefault(path, {})[on_change] = None
        return read

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        anyone_may_write: bool = False,
    ) -> str:
        """See MetadataStore."""
        await self._begin(path)
        with self._zookeeper._lock:
            self._begin_write(path)
            owner = self._health.session_id if ephemeral else None
            created = self._zookeeper._tree.create(path, data, owner, sequence)
            self._finish(path, is_write=True)
        return created

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See MetadataStore."""
        await self._begin(path)
        with self._zookeeper._lock:
            self._begin_write(path)
            new_version = self._zookeeper._tree.set(path, data, version)
            self._finish(path, is_write=True)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        await self._begin(path)
        with self._zookeeper._lock:
            self._begin_write(path)
            self._zookeeper._tree.delete(path, version)
            self._finish(path, is_write=True)

    async def close(self) -> None:
        """See MetadataStore."""
        if self._health.state is SessionState.CLOSED:
            return
        with self._zookeeper._lock:
            session_id = self._forget()
            if session_id is not None and not self._expired:
                self._zookeeper.end_session(session_id)

    @property
    def _nodes(self) -> dict[str, Znode]:
        return self._zookeeper._tree.nodes if self._follower is None else self._follower.nodes

    async def _begin(self, path: str) -> None:
        """Wait until the ensemble answers; raise the error of a session that is not connected."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._health.state is not SessionState.CLOSED:
            await self._pause()
            await self._wait_for_answer(path)
        match self._health.state:
            case SessionState.CLOSED:
                raise StoreClosed("the connection to ZooKeeper was closed")
            case SessionState.SUSPENDED:
                raise StoreConnectionLost(f"ZooKeeper connection lost in an operation on {path}")
            case SessionState.LOST:
                raise SessionExpired(f"the ZooKeeper session ended during an operation on {path}")
            case SessionState.CONNECTED:
                return

    async def _wait_for_answer(self, path: str) -> None:
        """Wait while the ensemble does not answer; raises OperationTimedOut."""
        if self._zookeeper._answering:
            return
        answering = asyncio.get_running_loop().create_future()
        self._waiting.append(answering)
        try:
            async with asyncio.timeout(self.operation_timeout):
                await answering
        except TimeoutError:
            raise OperationTimedOut(
                f"ZooKeeper gave no answer about {path} within {self.operation_timeout:g} s"
            ) from None

    def _wake(self) -> None:
        """Let waiting operations continue: the ensemble answers again, or the client has ended."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            self._soon(partial(_settle, future))

    def _begin_write(self, path: str) -> None:
        """Bring the client's follower up to date; lose a write here if it must not be executed."""
        self._zookeeper.catch_up(self)
        if self._writes_to_lose and not self._writes_to_lose[0]:
            self._writes_to_lose.popleft()
            self._lose_connection(path)

    def _finish(self, path: str, *, is_write: bool = False) -> None:
        """Lose the answer to an executed operation, by `lose_next_answer` or `lose_next_write`."""
        if is_write and self._writes_to_lose:
            # The first entry is True: for False, `_begin_write` has raised an error.
            self._writes_to_lose.popleft()
            self._lose_connection(path)
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            self._lose_connection(path)

    def _lose_connection(self, path: str) -> None:
        """Suspend and resume the session, and raise StoreConnectionLost."""
        self._zookeeper.suspend(self)
        self._zookeeper.resume(self)
        raise StoreConnectionLost(f"ZooKeeper connection lost in an operation on {path}")

    def _forget(self) -> int | None:
        """Close the client, but do not end its session; return the session's id."""
        session_id = self._health.session_id
        self._data_watches.clear()
        self._child_watches.clear()
        if self in self._zookeeper._clients:
            self._zookeeper._clients.remove(self)
        self._wake()
        self._enter(SessionState.CLOSED, None)
        return session_id

    def _enter(self, state: SessionState, session_id: int | None) -> None:
        """Change the state on the event loop of the session."""
        if self._loop is None or self._loop is _running_loop():
            self._health.enter(state, session_id)
        else:
            self._soon(lambda: self._health.enter(state, session_id))

    def _notify(self, changed: str, child_lists: tuple[str, ...]) -> None:
        """Call and remove the watches of a change; if the client lags, `catch_up` does this."""
        if self._follower is not None:
            self._follower.missed.append((changed, child_lists))
            return
        watches = list(self._data_watches.pop(changed, ()))
        for path in child_lists:
            watches += self._child_watches.pop(path, ())
        self._call_watches(watches)

    def _call_and_remove_all_watches(self) -> None:
        """Call and remove all watches, so that their owners read again: changes may be missed."""
        by_path = (*self._data_watches.values(), *self._child_watches.values())
        self._data_watches, self._child_watches = {}, {}
        self._call_watches([on_change for watches in by_path for on_change in watches])

    def _call_watches(self, watches: list[OnChange]) -> None:
        delay = self._zookeeper.watch_delay
        for on_change in watches:
            if delay:
                self._soon(partial(_call_later, delay, on_change))
            else:
                self._soon(on_change)

    def _soon(self, call: Callable[[], object]) -> None:
        """Call in a later iteration of the session's event loop; callable on any thread."""
        loop = self._loop or asyncio.get_running_loop()
        if loop is _running_loop():
            loop.call_soon(call)
        else:
            # The session may outlive the event loop of a client that was not closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _call_later(delay: float, call: OnChange) -> None:
    asyncio.get_running_loop().call_later(delay, call)


async def _one_turn() -> None:
    await asyncio.sleep(0)
