"""The compare-and-set store over ZooKeeper. Touches the network and kazoo's threads.

kazoo runs on its own threads. This module passes kazoo's answers, watch events and state changes to
the event loop, and never blocks the event loop. Only this module, `kazoo_handlers` and
`kazoo_security` use kazoo.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, ZnodeStat

from waltz.metadata.core.zookeeper_answers import why_no_session
from waltz.metadata.kazoo_handlers import Handler, TlsHandler
from waltz.metadata.kazoo_log import KazooLog, SessionLog
from waltz.metadata.kazoo_security import Protection, protection
from waltz.metadata.store import (
    ANY_VERSION,
    Children,
    Node,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    OnChange,
    OperationTimedOut,
    SessionExpired,
    SessionHealth,
    SessionState,
    StoreClosed,
    StoreConnectionLost,
    StoreError,
    VersionConflict,
)
from waltz.metadata.zookeeper_access import OPEN_ACCESS, AccessDenied, ZooKeeperAccess
from waltz.metadata.zookeeper_probe import probe_zookeeper

log = logging.getLogger(__name__)

_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
"""How kazoo connects again: without a limit, after delays in seconds that double up to 2 s."""

_MOST_UNANSWERED = 100
"""The most operations that may wait while there is no connection to ZooKeeper.

kazoo keeps such operations until it is connected again, even after their time limit. For each one
it writes a byte to an internal socket, which it reads only while it is connected. Without this
limit, some 280 operations would fill the buffer of this socket (a Unix socket on Linux), and the
next write would block the event loop."""

_PROBE_SECONDS = 1.0
"""How long a server of ZooKeeper may take to answer `probe_zookeeper`."""


class ConnectFailed(StoreError):
    """ZooKeeper cannot be reached, or its address is malformed.

    ``summary`` is the text without the causes. ``answers`` says for each address what the server
    does instead of opening a session (`probe_zookeeper`), and is empty if none was asked.
    """

    def __init__(
        self, summary: str, why: str = "", answers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(f"{summary}: {why}" if why else summary)
        self.summary = summary
        self.answers = answers


class KazooStore:
    """A session with ZooKeeper, opened by `connect`. Implements `waltz.metadata.MetadataStore`."""

    def __init__(
        self,
        client: Any,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        operation_timeout_s: float,
        access: ZooKeeperAccess,
        session_protection: Protection,
    ) -> None:
        self._client = client
        self._access = access
        self._protection = session_protection
        self._loop = loop
        self._operation_timeout_s = operation_timeout_s
        self._health = SessionHealth(clock)
        self._unanswered = 0
        """How many operations kazoo has not answered, also those whose time limit has passed."""

    @classmethod
    async def connect(
        cls,
        connect_string: str,
        session_timeout_ms: int,
        access: ZooKeeperAccess = OPEN_ACCESS,
        *,
        connect_timeout_s: float | None = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> KazooStore:
        """Open a session.

        Raises ConnectFailed if ``connect_string`` is malformed, or if there is no session after
        ``connect_timeout_s`` (None: no limit). Raises BadCredentials or TlsConfigError if a file of
        ``access`` cannot be used.

        The session timeout is also the time limit of every later operation: an operation without an
        answer within this time raises OperationTimedOut.
        """
        # Load the PEM files now, so that unusable files raise an error. Later, on kazoo's thread,
        # an error could only be logged.
        access.tls.dialing_context()
        session_protection = protection(access)
        loop, timeout_s = asyncio.get_running_loop(), session_timeout_ms / 1000
        tls = access.tls
        handler = TlsHandler(timeout_s, tls) if tls.enabled else Handler(timeout_s)
        try:
            client = KazooClient(
                connect_string,
                timeout=timeout_s,
                connection_retry=_RECONNECT,
                handler=handler,
                auth_data=session_protection.auth_data,
                logger=KazooLog(),
            )
        except ValueError as problem:
            raise ConnectFailed(
                f"{connect_string!r} is not a ZooKeeper address ({problem}); it must be "
                "host:port, or several with commas between"
            ) from None
        store = cls(client, loop, clock, timeout_s, access, session_protection)
        connected = asyncio.Event()

        def set_if_connected(state: SessionState) -> None:
            if state is SessionState.CONNECTED:
                connected.set()

        unsubscribe = store.health.on_change(set_if_connected)
        store.health.on_change(SessionLog(connect_string).changed)
        client.add_listener(store._state_from_thread)
        client.start_async()
        try:
            async with asyncio.timeout(connect_timeout_s):
                await connected.wait()
        except TimeoutError:
            await store.close()
            summary = (
                f"no ZooKeeper session was established at {connect_string} within "
                f"{connect_timeout_s:g} s"
            )
            raise await _connect_failed(summary, connect_string, handler) from None
        except BaseException:
            await store.close()
            raise
        finally:
            unsubscribe()
        return store

    @property
    def health(self) -> SessionHealth:
        """See MetadataStore."""
        return self._health

    async def get(self, path: str, on_change: OnChange | None = None) -> Node | None:
        """See MetadataStore."""
        watch = self._watch(on_change)
        while True:
            try:
                data, stat = await self._call(path, partial(self._client.get_async, path, watch))
            except NodeMissing:
                if watch is None:
                    return None
                # A get request for a missing node leaves no watch in ZooKeeper, but an exists
                # request does. If the node was created between the two requests, read it again.
                if await self._call(path, partial(self._client.exists_async, path, watch)) is None:
                    return None
                continue
            return _node(data, stat)

    async def children(self, path: str, on_change: OnChange | None = None) -> Children:
        """See MetadataStore."""
        # With `include_data`, kazoo also returns the node's stat, which has the versions.
        begin = partial(
            self._client.get_children_async, path, self._watch(on_change), include_data=True
        )
        names, stat = await self._call(path, begin)
        return Children(tuple(sorted(names)), stat.version, stat.cversion)

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
        acls = self._protection
        begin = partial(
            self._client.create_async,
            path,
            data,
            acl=acls.everyone_writes_acl if anyone_may_write else acls.owner_writes_acl,
            ephemeral=ephemeral,
            sequence=sequence,
        )
        created: str = await self._call(path, begin)
        return created

    async def set(self, path: str, data: bytes, version: int) -> int:
        """See MetadataStore."""
        begin = partial(self._client.set_async, path, data, version)
        stat: ZnodeStat = await self._call(path, begin, version)
        new_version: int = stat.version
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        await self._call(path, partial(self._client.delete_async, path, version), version)

    async def close(self) -> None:
        """See MetadataStore."""
        if self._closed():
            return
        self._health.enter(SessionState.CLOSED, None)
        await asyncio.to_thread(self._stop_client)

    def _stop_client(self) -> None:
        """Stop kazoo. This blocks, and runs on a thread of its own."""
        try:
            self._client.stop()
            self._client.close()
        except kazoo_errors.KazooException:
            log.warning(
                "ZooKeeper session: not closed in time; its ephemeral nodes remain until it "
                "expires",
                exc_info=True,
            )

    async def _call(self, path: str, begin: Callable[[], Any], version: int = ANY_VERSION) -> Any:
        """Call ``begin``, which starts an operation of kazoo; return the operation's result.

        ``path`` and ``version`` are those of the operation, for the texts of errors.
        """
        if self._closed():
            raise StoreClosed("the connection to ZooKeeper was closed")
        connected = self._health.state is SessionState.CONNECTED
        if not connected and self._unanswered >= _MOST_UNANSWERED:
            raise StoreConnectionLost(
                f"ZooKeeper is not connected, and {self._unanswered} operations wait for it "
                f"already; the one on {path} was not begun"
            )
        answer = self._loop.create_future()
        operation = begin()
        self._unanswered += 1
        # kazoo calls this function, on one of its own threads, with the result.
        operation.rawlink(lambda result: self._from_thread(self._answered, answer, result))
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                return await answer
        except TimeoutError as problem:
            raise OperationTimedOut(
                f"ZooKeeper gave no answer about {path} within {self._operation_timeout_s:g} s"
            ) from problem
        except kazoo_errors.KazooException as problem:
            raise self._translate(problem, path, version) from problem

    def _answered(self, answer: asyncio.Future[Any], result: Any) -> None:
        """Pass the result of an operation to the task that waits for it, if one still waits."""
        self._unanswered -= 1
        _settle(answer, result)

    def _translate(self, problem: Exception, path: str, version: int) -> StoreError:
        """Return the error of `waltz.metadata.store` for an error of kazoo."""
        match problem:
            case kazoo_errors.NoNodeError():
                return NodeMissing(path)
            case kazoo_errors.NodeExistsError():
                return NodeExists(path)
            case kazoo_errors.NotEmptyError():
                return NodeNotEmpty(path)
            case kazoo_errors.BadVersionError():
                return VersionConflict(path, version)
            case kazoo_errors.NoAuthError():
                return AccessDenied(
                    f"ZooKeeper denied the access to {path}: {self._access.remedy()}"
                )
            case kazoo_errors.AuthFailedError() | kazoo_errors.SessionClosedRequireSaslError():
                return AccessDenied(
                    f"ZooKeeper ended the session during an operation on {path}, because it did "
                    f"not authenticate this process: {self._access.remedy()}"
                )
            # The next two cases must come before that of SessionExpiredError, which is the base
            # class of ConnectionClosedError: kazoo raises ConnectionClosedError also if only the
            # connection was lost, and the session continues.
            case kazoo_errors.ConnectionClosedError() if self._closed():
                return StoreClosed("the connection to ZooKeeper was closed")
            case kazoo_errors.ConnectionClosedError():
                return StoreConnectionLost(
                    f"the connection to ZooKeeper was lost during an operation on {path}"
                )
            case kazoo_errors.SessionExpiredError():
                return SessionExpired(f"the ZooKeeper session ended during an operation on {path}")
            case kazoo_errors.ConnectionLoss() | kazoo_errors.SessionMovedError():
                return StoreConnectionLost(
                    f"the connection to ZooKeeper was lost during an operation on {path}"
                )
            case _:
                return StoreError(f"ZooKeeper refused an operation on {path}: {problem!r}")

    def _watch(self, on_change: OnChange | None) -> _Watch | None:
        """Return the callback that kazoo gets for ``on_change``, None if that is None."""
        return None if on_change is None else _Watch(self._from_thread, on_change)

    def _from_thread(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Make the event loop call ``callback``. kazoo's threads call this method."""
        # After the loop has been closed, this raises RuntimeError. Nothing waits for the call then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _state_from_thread(self, state: Any) -> None:
        """Pass a new state of kazoo, and the session id, to the event loop."""
        # kazoo's client id is a pair of session id and password, None before the first session.
        client_id = self._client.client_id
        session_id = None if client_id is None else client_id[0]
        self._from_thread(self._enter_state, state, session_id)

    def _enter_state(self, state: Any, session_id: int | None) -> None:
        """Record a new state of kazoo. Runs on the event loop."""
        if self._closed():
            return
        if state == KazooState.CONNECTED:
            self._health.enter(SessionState.CONNECTED, session_id)
        elif state == KazooState.SUSPENDED:
            self._health.enter(SessionState.SUSPENDED, self._health.session_id)
        else:
            self._health.enter(SessionState.LOST, self._health.session_id)

    def _closed(self) -> bool:
        return self._health.state is SessionState.CLOSED


@dataclass(frozen=True, slots=True)
class _Watch:
    """A callback for a watch of kazoo.

    If a node gets two equal callbacks, kazoo keeps only one. Two objects of this class are equal if
    they have the same ``on_change``. So ``on_change`` is called only once for a change.
    """

    to_loop: Callable[..., None]
    on_change: OnChange

    def __call__(self, event: object) -> None:
        self.to_loop(self.on_change)


async def _connect_failed(summary: str, connect_string: str, handler: Handler) -> ConnectFailed:
    """Return the error of a session that was not established.

    Unless a TLS handshake has failed, this asks the servers of ZooKeeper for the reason.
    """
    if isinstance(handler, TlsHandler) and handler.problem:
        return ConnectFailed(summary, f"the TLS handshake failed: {handler.problem}")
    answers = await probe_zookeeper(connect_string, timeout_seconds=_PROBE_SECONDS)
    why = why_no_session(answers, tls=isinstance(handler, TlsHandler))
    return ConnectFailed(summary, why, answers)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    """Complete ``answer`` by kazoo's ``result``, unless the waiting task has already ended."""
    if answer.done():
        return
    if result.exception is not None:
        answer.set_exception(result.exception)
    else:
        answer.set_result(result.value)


def _node(data: bytes | None, stat: Any) -> Node:
    owner = stat.ephemeralOwner or None  # ZooKeeper's owner of a persistent node is 0.
    changed_at = stat.mtime / 1000  # ZooKeeper counts in milliseconds.
    return Node(data, stat.version, stat.cversion, owner, changed_at)
