"""Join a cluster as a server and own partitions, or follow as a client which server owns which.

Touches ZooKeeper, and runs a task on the event loop. `core.membership_steps` decides each step.

A server has a *znode* in ZooKeeper, which ZooKeeper deletes when the server's session with
ZooKeeper ends. After a lost connection, a server keeps its partitions, because its znode exists
until the session expires (test_suspended_server_keeps_its_partitions). After the expiry, the server
creates a new znode with the same server id, and owns the partitions that the next assignment gives
it (test_server_whose_session_expires_rejoins_with_the_same_id). Until then, another server may
already own a partition for which this server still sends requests. Once the new owner has opened a
store session with a larger id, storages refuse the requests of this server's older session.

Source: spec/zookeeper.md section 4. 0.13.2 repeats some failed steps in an endless loop. Here a
policy error is logged once, and the server waits for the next change. After a write conflict, the
server reads the membership again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import OwnedPartition, ServerDescriptor
from waltz.metadata.core.membership_steps import (
    NOT_APPLIED,
    AwaitChange,
    CreateNode,
    Endpoint,
    Membership,
    OwnPartitions,
    UseEndpoints,
    WriteAssignment,
    next_for_client,
    next_for_server,
)
from waltz.metadata.core.policy import PolicyError, Shuffle, assign
from waltz.metadata.core.server_transport import Transport
from waltz.metadata.retry import reconnections, retry_delays, until_answered, wait_at_most
from waltz.metadata.store import (
    ANY_VERSION,
    NodeMissing,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    VersionConflict,
)
from waltz.metadata.transport import declare_transport
from waltz.metadata.zookeeper_access import AccessDenied

log = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 5.0
"""How long a server that stops waits until ZooKeeper has deleted its znode."""

OnPartitions = Callable[[Mapping[int, int]], None]
"""Called with the partitions that the server owns now: a map from partition to generation."""

OnEndpoints = Callable[[Mapping[Endpoint, tuple[OwnedPartition, ...]]], None]
"""Called with the endpoints of all servers, and the partitions that each server owns."""


class _MembershipWatch:
    """Reads the membership whenever it may have changed, and passes it to ``act``."""

    def __init__(self, cluster: Cluster, act: Callable[[Membership], Awaitable[None]]) -> None:
        self._cluster = cluster
        self._act = act
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the watch. A failure that has ended it before is raised only by `finished`."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def finished(self) -> None:
        """Wait until the watch has ended; if a failure ended it, raise the failure."""
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        """Pass on the membership now and after each change, until the store is closed.

        Any error that is not handled here ends the watch: `finished` raises it.
        """
        delays = retry_delays()
        with reconnections(self._cluster.store) as reconnected:
            while True:
                self._changed.clear()
                reconnected.clear()
                try:
                    await self._act(await self._cluster.membership(self._changed.set))
                except VersionConflict:
                    # Another server has written the znode after this reading. So `_changed` is set,
                    # or soon will be, and the loop reads again.
                    log.debug("assignment: another server wrote it first; reading it again")
                except (PolicyError, MalformedMetadata) as problem:
                    log.error(
                        "assignment: %s; keeping the previous one until the membership changes",
                        problem,
                    )
                except StoreUnavailable as problem:
                    log.warning("failed to read or write the membership: %s; retrying", problem)
                    await wait_at_most(reconnected, next(delays))
                    continue
                except StoreClosed:
                    return
                delays = retry_delays()
                await self._changed.wait()


class ServerMembership:
    """The membership of this process's server.

    ``on_partitions`` is called on the event loop with all partitions that the server owns, whenever
    they may have changed. ``preferred`` are the partitions that the server should own if possible.
    ``shuffle`` is passed to `policy.assign`; tests pass one that is not random. ``uses_tls`` is
    what the server declares to clients (`waltz.metadata.transport`); None: it declares nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        endpoint: Endpoint,
        on_partitions: OnPartitions,
        *,
        preferred: Iterable[int] = (),
        shuffle: Shuffle = random.shuffle,
        uses_tls: bool | None = None,
    ) -> None:
        self._cluster = cluster
        self._uses_tls = uses_tls
        self._is_new_member = False
        """Whether the server may have created its znode since its last declaration."""
        self._declaration_problem = ""
        """Why the last declaration failed, "" if it did not."""
        self._on_partitions = on_partitions
        self._shuffle = shuffle
        self._descriptor = ServerDescriptor(0, *endpoint, tuple(preferred))
        self._num_partitions = 0
        self._applied_version = NOT_APPLIED
        self._watch: _MembershipWatch | None = None

    @property
    def server_id(self) -> int:
        """The id that `join` took, 0 before `join`."""
        return self._descriptor.server_id

    @property
    def preferred(self) -> frozenset[int]:
        """The partitions that the server should own if possible."""
        return frozenset(self._descriptor.preferred)

    @property
    def has_joined(self) -> bool:
        """Whether the server has applied an assignment, which may give it no partition."""
        return self._applied_version != NOT_APPLIED

    async def join(self) -> int:
        """Take a new server id, join in the background, and return the id.

        Raises NoCluster, MalformedMetadata.
        """
        assert self._watch is None
        self._num_partitions = (await self._cluster.params()).num_partitions
        server_id = await self._cluster.next_server_id()
        self._descriptor = replace(self._descriptor, server_id=server_id)
        self._watch = _MembershipWatch(self._cluster, self._act)
        return server_id

    async def finished(self) -> None:
        """Wait until `leave`, or until an operation finds the store closed.

        If a failure has ended the membership before, raise the failure.
        """
        assert self._watch is not None
        await self._watch.finished()

    async def leave(self) -> None:
        """Delete the server's znode, so that other servers take its partitions immediately.

        If that fails, the znode exists until the ZooKeeper session expires. The failure is only
        logged, because the caller must continue to stop the server.
        """
        if self._watch is None:
            return
        await self._watch.stop()
        store, paths = self._cluster.store, self._cluster.paths
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                membership = await self._cluster.membership()
                for name in self._own_nodes(membership):
                    with contextlib.suppress(NodeMissing):
                        await store.delete(paths.server_descriptor(name))
        except StoreClosed:
            log.debug(
                "server %d: ZooKeeper session already closed; its znode is deleted with the "
                "session",
                self.server_id,
            )
        except (StoreError, NoCluster, MalformedMetadata, TimeoutError) as problem:
            log.warning(
                "server %d: failed to delete its znode (%s); ZooKeeper deletes it when the session "
                "expires",
                self.server_id,
                str(problem) or "no answer in time",
            )

    async def prefer(self, partitions: Iterable[int]) -> None:
        """Change the preferred partitions, and recompute the assignment of all partitions.

        Raises PolicyError if no assignment can be computed now. The new preference is kept, and the
        next assignment uses it.

        Raises StoreError, NoCluster or MalformedMetadata if reading or writing fails. Then the
        server has its former preference again.
        """
        before = self._descriptor
        self._descriptor = replace(before, preferred=tuple(partitions))
        try:
            while not await until_answered(self._cluster.store, self._try_prefer):
                continue
        except (StoreError, NoCluster, MalformedMetadata):
            self._descriptor = before
            # `_try_prefer` may have written the new preference into the znode before it failed.
            with contextlib.suppress(StoreError, NoCluster, MalformedMetadata):
                await self._write_descriptor(await self._cluster.membership())
            raise

    async def _try_prefer(self) -> bool:
        """Try once to write preference and assignment; return False if they changed meanwhile."""
        membership = await self._cluster.membership()
        if not self._own_nodes(membership):
            # The server has no znode now. It creates one with the preference at its next step.
            return True
        try:
            if await self._write_descriptor(membership):
                # The assignment must follow the preference that was written just now.
                membership = await self._cluster.membership()
            await self._write_assignment(membership)
        except (VersionConflict, NodeMissing):
            return False
        return True

    def _own_nodes(self, membership: Membership) -> tuple[str, ...]:
        """Return the names of the server's znodes; none if the server must create one."""
        return membership.own_nodes(self.server_id, self._cluster.store.health.session_id)

    async def _write_descriptor(self, membership: Membership) -> bool:
        """Write the server's znodes if they are out of date; return whether they were written."""
        own_nodes = self._own_nodes(membership)
        if not own_nodes or membership.servers()[self.server_id] == self._descriptor:
            return False
        for name in own_nodes:
            path = self._cluster.paths.server_descriptor(name)
            await self._cluster.store.set(path, self._descriptor.encode(), ANY_VERSION)
        return True

    async def _act(self, membership: Membership) -> None:
        """Perform the server's next step."""
        session_id = self._cluster.store.health.session_id
        step = next_for_server(membership, self.server_id, session_id, self._applied_version)
        if self._is_new_member and not isinstance(step, CreateNode):
            # The answer to the creation of the znode was lost, so an earlier `_act` ended before
            # the second declaration below.
            await self._declare_transport()
        match step:
            case AwaitChange():
                pass  # The loop waits for the next change.
            case CreateNode():
                # Declare before the znode exists: a client that finds the server must know whether
                # the server uses TLS.
                await self._declare_transport()
                self._is_new_member = True
                await self._cluster.store.create(
                    self._cluster.paths.new_server_descriptor,
                    self._descriptor.encode(),
                    ephemeral=True,
                    sequence=True,
                )
                address = self._descriptor.address
                log.info("server %d: joined with the address %s", self.server_id, address)
                # Declare again: another server, which read the members before the znode existed,
                # may have removed the first declaration when it wrote its own.
                await self._declare_transport()
            case WriteAssignment():
                await self._write_assignment(membership)
            case OwnPartitions(partitions, version):
                self._applied_version = version
                self._on_partitions(partitions)
                # Another server may have left. Clients use plaintext only if every registered
                # server has declared it. If the server that left was the only one that had not,
                # this declaration makes clients use plaintext.
                await self._declare_transport()
            case _:
                assert_never(step)

    async def _declare_transport(self) -> None:
        """Declare whether this server uses TLS. MalformedMetadata and AccessDenied are only logged.

        After them the server continues without a declaration: clients whose settings say whether to
        use TLS do not need it. The same error again is logged at the level DEBUG.
        """
        if self._uses_tls is None:
            return
        declaration = Transport.of(uses_tls=self._uses_tls)
        last_problem, self._declaration_problem = self._declaration_problem, ""
        try:
            await declare_transport(
                self._cluster,
                self._descriptor.address,
                declaration,
                has_registered=self._is_new_member,
            )
        except (MalformedMetadata, AccessDenied) as problem:
            self._declaration_problem = str(problem)
            log.log(
                logging.DEBUG if last_problem == str(problem) else logging.ERROR,
                "server %d: failed to declare in ZooKeeper that it uses %s: %s; continuing without",
                self.server_id,
                declaration.value,
                problem,
            )
        self._is_new_member = False

    async def _write_assignment(self, membership: Membership) -> None:
        assignment = assign(
            membership.assignment,
            membership.cversion,
            self._num_partitions,
            membership.preferences(),
            self._shuffle,
        )
        await self._cluster.write_partition_assignment(assignment, membership.version)


class ClientMembership:
    """Follows, for a client, the servers and the partitions that each server owns.

    ``on_endpoints`` is called on the event loop whenever servers or partitions may have changed. It
    gets an empty map after the last server has left.
    """

    def __init__(self, cluster: Cluster, on_endpoints: OnEndpoints) -> None:
        self._cluster = cluster
        self._on_endpoints = on_endpoints
        self._applied_version = NOT_APPLIED
        self._watch: _MembershipWatch | None = None

    def start(self) -> None:
        """Begin to follow the servers, in a task on the event loop."""
        assert self._watch is None
        self._watch = _MembershipWatch(self._cluster, self._act)

    async def finished(self) -> None:
        """Wait until `stop`, or until an operation finds the store closed.

        If a failure has ended the task before, raise the failure.
        """
        assert self._watch is not None
        await self._watch.finished()

    async def stop(self) -> None:
        """Stop following the servers."""
        if self._watch is not None:
            await self._watch.stop()

    async def _act(self, membership: Membership) -> None:
        """Perform the client's next step."""
        step = next_for_client(membership, self._applied_version)
        match step:
            case AwaitChange():
                pass  # The loop waits for the next change.
            case UseEndpoints(endpoints, version):
                self._applied_version = version
                self._on_endpoints(endpoints)
            case _:
                assert_never(step)
