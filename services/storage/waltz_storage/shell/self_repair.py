"""Repair the records that the scrubber found damaged, from the other replicas of their partitions.

Nothing happens while no record is damaged. An *attempt* finds out in ZooKeeper which storages (the
*peers*) have the same partitions, queries them, and takes from them what `plan_repairs` chooses.
Touches ZooKeeper and the network; it changes the storage's own log through its `AdminHandler`, as a
repair by an administrator does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from waltz.admin import CopyFailed, StorageAdmin
from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.observation import ReplicaObserver
from waltz.admin.peer_repair import repair_from_peer
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.core.paths import BadRoot
from waltz.metadata.store import StoreError
from waltz.net import Backoff, ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig
from waltz.protocol import ADMIN, admin
from waltz.protocol.checksums import as_signed
from waltz.protocol.records import RecordBatch
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.repair_plan import PeerRepair, RepairPlan, plan_repairs
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.admin_handler import AdminHandler

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 30.0
"""The time limit of the queries of an attempt together, and of each batch of a repair."""
_RECORDS_AT_ONCE = 1000
"""How many records are read from a peer and replaced at once."""
_LOGGED_OBSTACLES = 10
"""How many reasons a log line lists."""


@dataclass(frozen=True, slots=True)
class RepairTimes:
    """When repairs are tried.

    The first attempt is made ``settle_seconds`` after new damage was found: what the scrubber finds
    in this time is repaired together. While damage is left, further attempts follow after the
    delays of ``retry``, which begin anew when new damage is found.
    """

    settle_seconds: float = 10.0
    retry: Backoff = field(default_factory=lambda: Backoff(60.0, 3600.0))


class SelfRepair:
    """Repairs the records that ``scrubber`` found damaged.

    The caller runs `run`, and calls `damage_found` each time that the scrubber finds new damage.
    ``open_metadata`` opens the metadata of the cluster in ZooKeeper, ``network`` opens connections
    to storages with ``tls``. All methods are for the main event loop.
    """

    def __init__(
        self,
        scrubber: Scrubber,
        directory: StorageDirectory,
        handler: AdminHandler,
        open_metadata: Callable[[], AbstractAsyncContextManager[Cluster]],
        tls: TlsConfig,
        network: Network,
        times: RepairTimes,
    ) -> None:
        self._findings = scrubber.findings
        self._directory = directory
        self._handler = handler
        self._open_metadata = open_metadata
        self._tls = tls
        self._network = network
        self._times = times
        self._found = asyncio.Event()

    def damage_found(self) -> None:
        """Make an attempt soon: after `RepairTimes.settle_seconds`, and after a running attempt."""
        self._found.set()

    async def run(self) -> None:
        """Repair what is found, again and again, until the task is cancelled."""
        failures = 0  # How many attempts have left damage since new damage was found.
        while True:
            # None: no damage is left, so only new damage leads to the next attempt.
            pause = self._times.retry.delay(failures - 1) if failures else None
            if await self._found_within(pause):
                failures = 0
                await asyncio.sleep(self._times.settle_seconds)
                # Before the attempt: what is found during it leads to another one.
                self._found.clear()
            await self._attempt()
            failures = failures + 1 if self._findings.ranges else 0

    async def _found_within(self, seconds: float | None) -> bool:
        """Wait at most ``seconds`` (None: for ever); return whether damage was found meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._found.wait()
        except TimeoutError:
            return False
        return True

    async def _attempt(self) -> None:
        """Repair what can be repaired now, and log what cannot."""
        obstacles: list[str] = []
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), self._open_metadata() as cluster:
                observation = await self._observe(cluster)
                params = await cluster.store_params()
        except (BadRoot, NoCluster, MalformedMetadata, StoreError, TimeoutError) as problem:
            obstacles.append(f"ZooKeeper: {problem or 'no answer in time'}")
        else:
            obstacles += await self._repair_all(observation, params)
        # Without damage, obstacles do not matter: an administrator may have repaired everything.
        if obstacles and self._findings.ranges:
            log.warning(
                "repair: records stay damaged for now, and the storage tries again later: %s",
                "; ".join(obstacles[:_LOGGED_OBSTACLES]),
            )

    async def _repair_all(self, observation: ReplicaObservation, params: StoreParams) -> list[str]:
        """Repair what the observed peers can give; return what cannot be repaired, and why.

        If a repair fails, also because this storage refuses the records, its peer is left out, and
        the rest is planned again with the other peers. So the loop ends after the last peer.
        """
        failures: dict[str, str] = {}
        while True:
            plan = self._plan(observation, failures.keys())
            for repair in plan.repairs:
                port = observation.maps.connections.admin_ports[repair.source]
                try:
                    async with await StorageAdmin.open(
                        repair.source, port, self._tls, params, self._network
                    ) as peer:
                        await self._repair(peer, repair)
                except (ConnectionLost, CopyFailed, DialFailed, RemoteFailure, TimeoutError) as why:
                    failures[repair.source] = f"{repair}: {why or 'no answer in time'}"
                    break
                log.info("repair: replaced %s", repair)
            else:  # No repair of this plan has failed.
                return [*failures.values(), *plan.obstacles]

    async def _observe(self, cluster: Cluster) -> ReplicaObservation:
        """Query the storages to which the damaged partitions are assigned, this one included.

        Raises NoCluster, MalformedMetadata, StoreError.
        """
        partitions = tuple(sorted(self._findings.ranges))
        assignments = (await cluster.storage_maps()).assignments
        storages = frozenset(s for p in partitions for s in assignments.storages_of(p))
        observer = ReplicaObserver(
            cluster,
            self._tls,
            # A storage that does not answer must leave time for ZooKeeper and the other storages.
            answer_seconds=_ANSWER_SECONDS / 3,
            retry=False,
            network=self._network,
        )
        # ``query_peers`` would query the servers, too, and the storages twice.
        scope = ObservationScope(partitions, storages, query_peers=False, damage=True)
        return await observer.observe(scope)

    def _plan(self, observation: ReplicaObservation, excluded: Set[str]) -> RepairPlan:
        """Plan the repair of what is damaged now, without records of the ``excluded`` storages."""
        marks = {state.partition: state.local_low_water_mark for state in self._directory.states()}
        # The findings may have more partitions now than were observed; the next attempt has them.
        damaged = {
            partition: ranges
            for partition, ranges in self._findings.ranges.items()
            if partition in observation.partitions
        }
        return plan_repairs(damaged, marks, observation, excluded)

    async def _repair(self, peer: StorageAdmin, repair: PeerRepair) -> None:
        """Perform one repair, in batches; `_ANSWER_SECONDS` are the time limit of each batch.

        Raises CopyFailed, RemoteFailure, ConnectionLost, TimeoutError.
        """
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(_ANSWER_SECONDS) as deadline:
            await repair_from_peer(
                peer,
                _OwnReplica(self._handler),
                repair.damaged,
                batch_size=_RECORDS_AT_ONCE,
                progress=lambda _at, _last: deadline.reschedule(clock() + _ANSWER_SECONDS),
            )


class _OwnReplica:
    """Replaces records of the storage's own log, as a request of an administrator does."""

    def __init__(self, handler: AdminHandler) -> None:
        self._handler = handler

    async def repair(self, partition: int, records: RecordBatch, checksum: int) -> None:
        """See `waltz.admin.peer_repair.RepairTarget`. Raises CopyFailed if the log refuses it."""
        answered: asyncio.Future[admin.Response] = asyncio.get_running_loop().create_future()

        def reply(answer: admin.Response) -> None:
            # The future is cancelled if the storage stops meanwhile.
            if not answered.done():
                answered.set_result(answer)

        # The sequence number, 0, matters only on a connection.
        request = admin.RepairRecordsRequest(0, partition, as_signed(checksum), records)
        self._handler.handle(request, max(ADMIN.versions), reply)
        answer = await answered
        if isinstance(answer, admin.AdminFailureResponse):
            raise CopyFailed(answer.failure.message)
