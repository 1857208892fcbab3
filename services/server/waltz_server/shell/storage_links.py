"""Connect this server to storages: one link per storage, shared by all partitions.

A link (`waltz.net.link`) is a connection that is opened again after a failure. It exists as long as
a partition uses it. If a storage leaves a request unanswered for too long, the server closes the
connection. Otherwise a hung storage would delay appends that a quorum of other storages could
acknowledge (``test_storage_that_leaves_a_request_unanswered_is_disconnected``).

Touches the network.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from waltz.net import (
    TCP,
    Backoff,
    ConnectionLost,
    Dialer,
    DialFailed,
    Network,
    ReconnectingLink,
    RemoteFailure,
    RpcConnection,
    TlsConfig,
    split_address,
)
from waltz.protocol import STORAGE, ProtocolSpec
from waltz.protocol import storage as st
from waltz.runtime.process import fail_stop_on_error
from waltz_server.core.replication.storage_versions import RequestConverter

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 10.0
"""A connection whose oldest unanswered request has waited this long is closed."""
_BACKOFF = Backoff(0.05, 1.0)
"""The delays between attempts to connect to a storage."""


class StorageUser(Protocol):
    """The interface of a partition that uses links. The links call these methods."""

    def storage_up(self, storage: str) -> None:
        """Note that the connection is open."""

    def storage_down(self, storage: str) -> None:
        """Note that the connection is lost, and that all requests on it were answered by None."""

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        """Handle the response to ``request``, None if the connection was lost."""


@dataclass(frozen=True, slots=True)
class ExpectedCluster:
    """The identity of this server's cluster; a storage of another cluster refuses the server."""

    key: uuid.UUID
    num_partitions: int


async def open_storage(
    storage: str,
    dialer: Dialer,
    identity: ExpectedCluster,
    on_lost: Callable[[str], None] | None = None,
) -> RpcConnection:
    """Open a connection to ``storage``; raises DialFailed, RemoteFailure."""
    cluster = (identity.key, identity.num_partitions)
    return await RpcConnection.open_storage(
        split_address(storage), dialer.tls, cluster, on_lost, dialer.spec, dialer.network
    )


class StorageLink:
    """The link to one storage, and the partitions that use it.

    Implements `waltz.net.link.LinkHandler`.
    """

    def __init__(self, storage: str, dialer: Dialer, identity: ExpectedCluster) -> None:
        self.storage = storage
        self.users: dict[StorageUser, None] = {}
        """The partitions, as a set that keeps its order, so that a simulation can be repeated."""
        self._dialer = dialer
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._converter = RequestConverter()
        """Adapts requests to the version of the storage.

        Version 0 cannot bound a list in bytes. So the converter learns the mean size of the records
        that the storage returns, and requests as many records as probably fit.
        """
        self._sent_at: dict[int, float] = {}
        """When each unanswered request was sent, by its sequence number."""
        self._deadline_timer: asyncio.TimerHandle | None = None
        """The timer of the next `_check_deadline`."""
        self._link: ReconnectingLink[RpcConnection] = ReconnectingLink(
            f"storage {storage}", self, _BACKOFF
        )
        fail_stop_on_error(self._link.task)

    @property
    def connected(self) -> bool:
        """Whether the connection is open, so that requests can be sent."""
        return self._link.connection is not None

    def send_request(self, user: StorageUser, request: st.Request) -> None:
        """Send ``request``; call ``user.answered`` with its response, or None if the link fails."""
        rpc = self._link.connection
        if rpc is None or rpc.closed:
            # Not within this call: the partition is still performing effects.
            self._loop.call_soon(user.answered, self.storage, request, None, 0.0)
            return
        seq, sent_at = rpc.next_seq(), self._loop.time()
        converted = self._converter.convert(request, rpc.version)
        self._sent_at[seq] = sent_at
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_later(_ANSWER_SECONDS, self._check_deadline)

        def answered(answer: Any) -> None:
            self._sent_at.pop(seq, None)
            response = None if isinstance(answer, ConnectionLost) else answer
            if response is not None:
                # After the loss of this connection, the backoff begins at its shortest delay again.
                self._link.mark_useful()
            self._converter.answered(converted, response)
            elapsed_ms = (self._loop.time() - sent_at) * 1000
            user.answered(self.storage, request, response, elapsed_ms)

        rpc.send_request(_numbered(converted, seq), answered)

    async def close(self) -> None:
        """Close permanently. Each unanswered request gets the answer None."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.users.clear()
        await asyncio.wait([self._link.stop()])

    async def open(self) -> RpcConnection:
        """See `waltz.net.link.LinkHandler`."""
        return await open_storage(self.storage, self._dialer, self._identity, self._link.lost)

    def up(self) -> None:
        """See LinkHandler."""
        for user in list(self.users):
            user.storage_up(self.storage)

    def down(self) -> None:
        """See LinkHandler."""
        for user in list(self.users):
            user.storage_down(self.storage)

    def _check_deadline(self) -> None:
        """Close the connection if its oldest request has waited too long; else check later."""
        self._deadline_timer = None
        rpc = self._link.connection
        if not self._sent_at or rpc is None:
            return
        oldest, now = min(self._sent_at.values()), self._loop.time()
        # The next check is at an absolute time (`call_at`). `call_later` adds ``due`` - ``now`` to
        # ``now``, and the sum may be rounded to just before ``due``. On a loop with virtual time,
        # this check would then run at that time again and again, and the time would never pass.
        due = oldest + _ANSWER_SECONDS
        if now >= due:
            log.error(
                "storage %s: no answer for %.0f s, closing the connection",
                self.storage,
                now - oldest,
            )
            rpc.abort("no answer")
        else:
            self._deadline_timer = self._loop.call_at(due, self._check_deadline)


def _numbered(request: st.Request, seq: int) -> st.Request:
    """Return ``request`` with the sequence number ``seq``."""
    if type(request) is st.AppendRequest:
        # `replace` takes several times as long, and each append is sent to every replica.
        return st.AppendRequest(request.session_id, seq, request.partition, request.records)
    return replace(request, seq_num=seq)


class StorageLinks:
    """All links of a server, which offers the protocol versions in ``spec`` to storages."""

    def __init__(
        self,
        tls: TlsConfig,
        identity: ExpectedCluster,
        spec: ProtocolSpec = STORAGE,
        network: Network = TCP,
    ) -> None:
        self._dialer = Dialer(tls, spec, network)
        self._identity = identity
        self._links: dict[str, StorageLink] = {}
        """The links that a partition uses, by storage."""
        self._closing: set[asyncio.Task[None]] = set()
        """The tasks that close links which no partition uses any more."""

    def connect(self, user: StorageUser, storages: frozenset[str]) -> dict[str, StorageLink]:
        """Let ``user`` have links to exactly ``storages``; return the links by storage.

        A link that no partition uses any more is closed.
        """
        for name, link in list(self._links.items()):
            if user in link.users and name not in storages:
                del link.users[user]
                if not link.users:
                    self._drop(name)
        # Sorted: the order of a set of strings differs from process to process.
        for name in sorted(storages):
            link = self._link_to(name)
            if user not in link.users:
                link.users[user] = None
                if link.connected:
                    user.storage_up(name)
        return {name: self._links[name] for name in sorted(storages)}

    async def close(self) -> None:
        """Close all links."""
        for name in list(self._links):
            self._drop(name)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def check(self, storages: frozenset[str]) -> dict[str, bool]:
        """Try to open a new connection to each storage; return for each whether that succeeded."""
        names = sorted(storages)
        reached = await asyncio.gather(*map(self._reachable, names))
        return dict(zip(names, reached, strict=True))

    def _link_to(self, name: str) -> StorageLink:
        """Return the link to a storage; create it if there is none."""
        if name not in self._links:
            self._links[name] = StorageLink(name, self._dialer, self._identity)
        return self._links[name]

    async def _reachable(self, storage: str) -> bool:
        """Whether a new connection to ``storage`` can be opened; it is closed at once."""
        try:
            rpc = await open_storage(storage, self._dialer, self._identity)
        except (DialFailed, RemoteFailure):
            return False
        rpc.close()
        return True

    def _drop(self, name: str) -> None:
        """Remove a link, and begin to close it."""
        link = self._links.pop(name)
        task = asyncio.get_running_loop().create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
