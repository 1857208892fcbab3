"""Repair, from other replicas, the records that the scrubber or the start found damaged.

An *attempt* reads from ZooKeeper to which storages the damaged partitions are assigned. It queries
these storages for the state of their replicas and for their damaged records. Then it replaces each
damaged record that one of them has undamaged. There is no attempt while no record is damaged.
Touches ZooKeeper and the network, and changes the own log by requests to the admin handler.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from waltz.admin import CopyFailed, StorageAdmin
from waltz.admin.core.replicas import ReplicaObservation
from waltz.admin.peer_repair import repair_from_peer
from waltz.metadata.core.formats import StoreParams
from waltz.net import (
    Backoff,
    ConnectionLost,
    DialFailed,
    Network,
    RemoteFailure,
    TlsConfig,
    TlsConfigError,
)
from waltz.protocol import ADMIN, admin
from waltz.protocol.checksums import as_signed
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import RecordBatch
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.findings import IdRange
from waltz_storage.core.scrub.listing import listed
from waltz_storage.core.scrub.repair_plan import PeerRepair, next_repair, records_of
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.peers import Peers, PeersUnknown

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 30.0
"""The time that a peer has to send each batch, and that the own log then has to replace it."""
_PERSISTENT_SECONDS = 600.0
"""Obstacles that last longer are logged as an error: most others, such as a storage that restarts,
end before. The alert WaltzRecordsDamaged waits for the same time."""
_RECORDS_AT_ONCE = 1000
"""How many records are read from a peer and replaced at once."""

_UNREACHABLE = (ConnectionLost, DialFailed, TimeoutError, TlsConfigError)
"""Errors after which an attempt sends no further request to the peer."""
_REFUSED = (CopyFailed, RemoteFailure)
"""Errors that concern one range: the peer cannot give it, or the own log refuses it."""


class OwnLogSilent(Exception):
    """The own log has not answered in time, so no peer can help. The text says what to do."""


@dataclass(frozen=True, slots=True)
class RepairTimes:
    """When repairs are tried.

    The first attempt is made ``settle_seconds`` after new damage was found, so that one attempt
    repairs what the scrubber finds together. While damage is left, attempts follow by ``retry``.
    """

    settle_seconds: float = 10.0
    retry: Backoff = field(default_factory=lambda: Backoff(60.0, 3600.0))


class SelfRepair:
    """Repairs what ``scrubber`` finds; `damage_found` must be called when it finds something.

    All methods are for the main event loop.
    """

    def __init__(
        self,
        scrubber: Scrubber,
        directory: StorageDirectory,
        handler: AdminHandler,
        peers: Peers,
        times: RepairTimes,
    ) -> None:
        self._findings = scrubber.findings
        self._directory = directory
        self._handler = handler
        self._peers = peers
        self._times = times
        self._new_damage = asyncio.Event()
        """Set when damage was found since the last attempt began."""
        self._obstructed_since: float | None = None
        """The time of the first of the last attempts that all met an obstacle, None if the last
        attempt met none."""
        self._last_line = (logging.NOTSET, "")
        """Level and obstacles that the last attempt has logged."""

    def damage_found(self) -> None:
        """Begin an attempt soon, because damage was found."""
        self._new_damage.set()

    async def run(self) -> None:
        """Repair what is found, again and again, until the task is cancelled."""
        retry = self._times.retry
        failures = 0  # How many attempts in a row have left damage.
        while True:
            # The wait is limited even if no damage is known: the check at the end of an
            # administrator's repair adds damage to the findings, but does not call `damage_found`.
            pause = retry.delay(failures - 1) if failures else retry.longest_seconds
            if await self._is_found_within(pause):
                failures = 0
                await asyncio.sleep(self._times.settle_seconds)
                self._new_damage.clear()
            if self._findings.ranges:
                await self._attempt()
            failures = failures + 1 if self._findings.ranges else 0
            if not failures:  # Also if an administrator has repaired the records.
                self._log_unrepaired([], [])

    async def _is_found_within(self, seconds: float) -> bool:
        """Wait at most ``seconds``; return whether damage was found meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._new_damage.wait()
        except TimeoutError:
            return False
        return True

    async def _attempt(self) -> None:
        """Repair what can be repaired now, and log what cannot."""
        partitions = tuple(sorted(self._findings.ranges))
        waiting: list[str] = []
        try:
            observation, params = await self._peers.observe(partitions, damage=True)
        except PeersUnknown as problem:
            obstacles = [str(problem)]
        else:
            peers = self._peers
            async with _Attempt(
                observation, params, self._handler, peers.tls, peers.network
            ) as attempt:
                try:
                    await self._repair_all(attempt, observation)
                except OwnLogSilent as problem:
                    attempt.obstacles.append(str(problem))
            if attempt.replaced:
                log.info("repair: replaced %s", listed(attempt.replaced))
            obstacles, waiting = attempt.obstacles, attempt.waiting
        if self._findings.ranges:  # If not, another source had the records.
            self._log_unrepaired(obstacles, waiting)

    def _log_unrepaired(self, obstacles: list[str], waiting: list[str]) -> None:
        """Log what an attempt has not repaired: `_Attempt.obstacles` and `_Attempt.waiting`.

        Obstacles that do not end by themselves become an error. Lines that an attempt repeats have
        the level DEBUG.
        """
        now = asyncio.get_running_loop().time()
        if not obstacles:
            self._obstructed_since = None
        elif self._obstructed_since is None:
            self._obstructed_since = now
        since = self._obstructed_since
        is_persistent = since is not None and now - since >= _PERSISTENT_SECONDS
        line = (logging.ERROR if is_persistent else logging.WARNING, listed(waiting + obstacles))
        last_line, self._last_line = self._last_line, line
        if waiting or obstacles:
            level, text = line
            log.log(
                logging.DEBUG if line == last_line else level,
                "repair: records stay damaged for now, and the storage tries again later: %s",
                text,
            )

    async def _repair_all(self, attempt: _Attempt, observation: ReplicaObservation) -> None:
        """Repair the damaged ranges of the partitions that were observed, one after the other.

        Raises OwnLogSilent.
        """
        marks = {state.partition: state.local_low_water_mark for state in self._directory.states()}
        for partition, ranges in sorted(self._findings.ranges.items()):
            # Other partitions with damage were found after the observation: they are left to the
            # next attempt.
            if partition in observation.partitions:
                for ids in ranges:
                    await attempt.repair(partition, ids, marks.get(partition, -1))


class _Attempt(AsyncExitStack):
    """One attempt, with its connections to peers, which are closed at its end."""

    def __init__(
        self,
        observation: ReplicaObservation,
        params: StoreParams,
        handler: AdminHandler,
        tls: TlsConfig,
        network: Network,
    ) -> None:
        super().__init__()
        self.replaced: list[str] = []
        """What was repaired, as texts."""
        self.obstacles: list[str] = []
        """What was not repaired, and why."""
        self.waiting: list[str] = []
        """What was not repaired and can be repaired later, without a person."""
        self._observation = observation
        self._params = params
        self._handler = handler
        self._tls = tls
        self._network = network
        self._connections: dict[str, StorageAdmin] = {}
        self._unreachable: set[str] = set()
        """The peers that get no further request in this attempt."""

    async def repair(self, partition: int, ids: IdRange, mark: int) -> None:
        """Repair the records ``ids`` up to the own local low-water ``mark``, as far as possible.

        Only records up to the mark are certainly committed, and so the same on all peers. The next
        store session raises the mark. Raises OwnLogSilent.
        """
        if ids.last_id > mark:
            above = DamagedRange(partition, max(ids.first_id, mark + 1), ids.last_id)
            self.waiting.append(
                f"{records_of(above)}: above the local low-water mark {mark}; they can be "
                "repaired after the next store session has begun"
            )
        refusals: dict[str, str] = {}  # By peer: why no record came from it.
        remaining = IdRange(ids.first_id, min(ids.last_id, mark))
        while remaining.first_id <= remaining.last_id:
            excluded = self._unreachable | refusals.keys()
            repair = next_repair(self._observation, partition, remaining, excluded)
            if repair is None:
                why = "; ".join(refusals.values()) or (
                    "no other replica that takes part in the store session has them undamaged and "
                    "can be read"
                )
                unrepaired = DamagedRange(partition, remaining.first_id, remaining.last_id)
                self.obstacles.append(f"{records_of(unrepaired)}: {why}")
                return
            try:
                await self._replace(repair)
            except _UNREACHABLE as problem:
                self._unreachable.add(repair.source)
                reason = str(problem) or f"no answer within {_ANSWER_SECONDS:g} s"
                self.obstacles.append(f"storage {repair.source}: {reason}")
            except _REFUSED as problem:
                refusals[repair.source] = f"from storage {repair.source}: {problem}"
            else:
                self.replaced.append(str(repair))
                remaining = IdRange(repair.damaged.last_id + 1, remaining.last_id)

    async def _replace(self, repair: PeerRepair) -> None:
        """Perform one repair, in batches; the peer has a new time limit for each batch.

        Raises the errors `_UNREACHABLE` and `_REFUSED`, and OwnLogSilent.
        """
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(_ANSWER_SECONDS) as deadline:
            await repair_from_peer(
                await self._peer(repair.source),
                _OwnReplica(self._handler, deadline),
                repair.damaged,
                batch_size=_RECORDS_AT_ONCE,
                progress=lambda _at, _last: deadline.reschedule(clock() + _ANSWER_SECONDS),
            )

    async def _peer(self, storage: str) -> StorageAdmin:
        """Return the connection to the admin port of ``storage``; open it if there is none."""
        if storage not in self._connections:
            port = self._observation.maps.connections.admin_ports[storage]
            self._connections[storage] = await self.enter_async_context(
                await StorageAdmin.open(storage, port, self._tls, self._params, self._network)
            )
        return self._connections[storage]


class _OwnReplica:
    """Replaces records of the storage's own log, as a request of an administrator does.

    ``peer_deadline`` is the time limit of the peer. It is switched off while the own log is
    awaited: a slow disk of this storage must not be reported as a failure of the peer
    (`test_own_log_that_does_not_answer_is_named_instead_of_the_peer`). ``progress`` in
    `_Attempt._replace` sets it again for the next batch.
    """

    def __init__(self, handler: AdminHandler, peer_deadline: asyncio.Timeout) -> None:
        self._handler = handler
        self._peer_deadline = peer_deadline

    async def repair(self, partition: int, records: RecordBatch, checksum: int) -> None:
        """See `waltz.admin.peer_repair.RepairTarget`.

        Raises CopyFailed if the log refuses the records, and OwnLogSilent.
        """
        self._peer_deadline.reschedule(None)
        answered: asyncio.Future[admin.Response] = asyncio.get_running_loop().create_future()

        def reply(answer: admin.Response) -> None:
            # The future is cancelled if `_ANSWER_SECONDS` pass or the storage stops meanwhile.
            if not answered.done():
                answered.set_result(answer)

        request = admin.RepairRecordsRequest(0, partition, as_signed(checksum), records)
        self._handler.handle(request, max(ADMIN.versions), reply)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await answered
        except TimeoutError:
            first_id = records.first_id()
            replaced = DamagedRange(partition, first_id, first_id + records.count - 1)
            raise OwnLogSilent(
                f"{records_of(replaced)}: this storage has not replaced them in its own log within "
                f"{_ANSWER_SECONDS:g} s: check its disk"
            ) from None
        if isinstance(answer, admin.AdminFailureResponse):
            raise CopyFailed(answer.failure.message)
