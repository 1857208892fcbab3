"""Taking part in the membership: a server that joins and owns partitions, a client that watches.

Effects: the store's, and a task on the event loop. What to do is decided in ``recipe``. Losing
touch with the store changes nothing for a while; only when the session has really ended is a
server's node gone, and it is then made again with the same server id. Source: spec/zookeeper.md
section 4, without the reference's endless loops: a policy error is reported once and waits for the
next change, and a conflict means reading again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import OwnedPartition, ServerDescriptor
from waltz.metadata.core.membership_steps import (
    NOTHING,
    Connect,
    Endpoint,
    Join,
    Reassign,
    Serve,
    View,
    next_for_client,
    next_for_server,
)
from waltz.metadata.core.policy import PolicyError, Shuffle, assign
from waltz.metadata.retry import reconnections, retry_delays, until_answered, wait_at_most
from waltz.metadata.store import (
    ANY_VERSION,
    NodeMissing,
    StoreClosed,
    StoreUnavailable,
    VersionConflict,
)

log = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 5.0

OnPartitions = Callable[[Mapping[int, int]], None]
"""Gets the partitions that the server owns now, each with its generation."""

OnEndpoints = Callable[[Mapping[Endpoint, tuple[OwnedPartition, ...]]], None]
"""Gets every server's endpoint with the partitions it owns, each with its generation."""


class _Observer:
    """Reads the view again whenever it may have changed, and hands it to ``act``."""

    def __init__(self, cluster: Cluster, act: Callable[[View], Awaitable[None]]) -> None:
        self._cluster = cluster
        self._act = act
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End it; what it has failed with before is for ``finished``."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def finished(self) -> None:
        """Wait for the end; raise what ended it, if it was not ``stop``."""
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        delays = retry_delays()
        with reconnections(self._cluster.store) as reconnected:
            while True:
                self._changed.clear()
                reconnected.clear()
                try:
                    await self._act(await self._cluster.view(self._changed.set))
                except VersionConflict:
                    # Somebody wrote since; the watch that was set by the reading has seen it.
                    log.debug("another server wrote the assignment first")
                except (PolicyError, MalformedMetadata) as problem:
                    log.error("partitions cannot be assigned: %s", problem)
                except StoreUnavailable as problem:
                    log.warning("membership: %s; looking again", problem)
                    await wait_at_most(reconnected, next(delays))
                    continue
                except StoreClosed:
                    return
                delays = retry_delays()
                await self._changed.wait()


class ServerMembership:
    """This process's server among the others.

    ``on_partitions`` is called on the event loop with everything the server is to own, whenever
    that may have changed. ``shuffle`` is where the policy's randomness comes from.
    """

    def __init__(
        self,
        cluster: Cluster,
        endpoint: Endpoint,
        on_partitions: OnPartitions,
        *,
        preferred: Iterable[int] = (),
        shuffle: Shuffle = random.shuffle,
    ) -> None:
        self._cluster = cluster
        self._on_partitions = on_partitions
        self._shuffle = shuffle
        self._descriptor = ServerDescriptor(0, *endpoint, tuple(preferred))
        self._num_partitions = 0
        self._applied = NOTHING
        self._observer: _Observer | None = None

    @property
    def server_id(self) -> int:
        """The id taken by ``join``; 0 before."""
        return self._descriptor.server_id

    async def join(self) -> int:
        """Take a new server id, join in the background, and return the id.

        Raises NoCluster, MalformedMetadata.
        """
        assert self._observer is None
        self._num_partitions = (await self._cluster.params()).num_partitions
        server_id = await self._cluster.next_server_id()
        self._descriptor = replace(self._descriptor, server_id=server_id)
        self._observer = _Observer(self._cluster, self._act)
        return server_id

    async def finished(self) -> None:
        """Wait until the server has left; raise what ended its membership otherwise."""
        assert self._observer is not None
        await self._observer.finished()

    async def leave(self) -> None:
        """Leave at once, so that others take over without waiting for the session to expire.

        When the store does not answer, the node stays until the session ends.
        """
        if self._observer is None:
            return
        await self._observer.stop()
        store, paths = self._cluster.store, self._cluster.paths
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                view = await self._cluster.view()
                for name in view.own_nodes(self.server_id, store.health.session_id):
                    with contextlib.suppress(NodeMissing):
                        await store.delete(paths.server_descriptor(name))
        except (StoreUnavailable, TimeoutError) as problem:
            log.warning("the server's node stays until its session ends: %r", problem)
        except StoreClosed:
            log.debug("the server has left with its session")

    async def prefer(self, partitions: Iterable[int]) -> None:
        """Change the preferred partitions, and have all partitions assigned anew for it.

        Raises PolicyError if that is impossible; the preference is then kept for later.
        """
        self._descriptor = replace(self._descriptor, preferred=tuple(partitions))
        while not await until_answered(self._cluster.store, self._try_prefer):
            continue

    async def _try_prefer(self) -> bool:
        """Return False if something changed meanwhile, so that it has to be tried again."""
        store, paths = self._cluster.store, self._cluster.paths
        view = await self._cluster.view()
        own = view.own_nodes(self.server_id, store.health.session_id)
        if not own:
            # Whoever assigns partitions after the next joining will see the preference.
            return True
        try:
            if view.servers()[self.server_id] != self._descriptor:
                for name in own:
                    path = paths.server_descriptor(name)
                    await store.set(path, self._descriptor.encode(), ANY_VERSION)
                view = await self._cluster.view()
            await self._reassign(view)
        except (VersionConflict, NodeMissing):
            return False
        return True

    async def _act(self, view: View) -> None:
        session_id = self._cluster.store.health.session_id
        match next_for_server(view, self.server_id, session_id, self._applied):
            case Join():
                await self._cluster.store.create(
                    self._cluster.paths.new_server_descriptor,
                    self._descriptor.encode(),
                    ephemeral=True,
                    sequence=True,
                )
                log.info("server %d has joined as %s", self.server_id, self._descriptor)
            case Reassign():
                await self._reassign(view)
            case Serve(partitions, applied):
                self._applied = applied
                self._on_partitions(partitions)

    async def _reassign(self, view: View) -> None:
        assignment = assign(
            view.assignment, view.cversion, self._num_partitions, view.preferences(), self._shuffle
        )
        await self._cluster.write_partition_assignment(assignment, view.version)


class ClientMembership:
    """A client's view of which server owns which partitions.

    ``on_endpoints`` is called on the event loop whenever that may have changed, and with nothing
    when the last server has gone.
    """

    def __init__(self, cluster: Cluster, on_endpoints: OnEndpoints) -> None:
        self._cluster = cluster
        self._on_endpoints = on_endpoints
        self._applied = NOTHING
        self._observer: _Observer | None = None

    def start(self) -> None:
        """Begin to watch, in the background."""
        assert self._observer is None
        self._observer = _Observer(self._cluster, self._act)

    async def finished(self) -> None:
        """Wait until it has stopped; raise what ended it otherwise."""
        assert self._observer is not None
        await self._observer.finished()

    async def stop(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            await self._observer.stop()

    async def _act(self, view: View) -> None:
        match next_for_client(view, self._applied):
            case Connect(endpoints, applied):
                self._applied = applied
                self._on_endpoints(endpoints)
