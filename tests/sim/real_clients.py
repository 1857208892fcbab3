"""Clients of a simulated cluster: what all real clients have, and those that append."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from tests.sim.alarm import Alarm
from tests.sim.checker import Checker
from tests.sim.client_wire import ClientSight
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.operation import Batch, Op
from tests.sim.unreliable_store import UnreliableStore
from waltz.client import (
    Absent,
    Appended,
    AppendUncertain,
    ClientAhead,
    ClientOptions,
    ClusterUnreachable,
    Draft,
    LockFailed,
    Refused,
    ServerTooOld,
)
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.protocol import CLIENT_SERVER
from waltz.protocol.locks import Lock
from waltz.testing.cluster import InProcessClient
from waltz.testing.network import MemoryNetwork
from waltz.testing.nodes import ROOT

LOCKS = 12
RANGES_SINCE = 5
UNSUPPORTED_SECONDS = 0.2
"""How long a client waits before it tries again what its server does not support."""

_LONG_WAIT_SECONDS = 0.5
_APPEND_SECONDS = 0.02
_ENOUGH_APPENDS = 200
_SLOWER = 5
"""The factor of the pauses after `_ENOUGH_APPENDS`: a longer log would only take time."""
_FIRST_BATCH = 100
"""The number of appends in each batch at the beginning of a long log."""
_BATCHED = 0.4
"""Share of the attempts of a client that supports batches."""
_TIMED = 0.05
"""Share of the appends with a timeout that may be too short."""
_HEADER = 7
_LOCKS = tuple(Lock("sim", number) for number in range(LOCKS))
_BY_HASH = {lock.hash(): lock for lock in _LOCKS}

OpenStore = Callable[[], Awaitable[UnreliableStore]]


class ClientWorld:
    """What all simulated clients use."""

    def __init__(
        self,
        clock: LoopClock,
        network: MemoryNetwork,
        history: History,
        alarm: Alarm,
        open_store: OpenStore,
    ) -> None:
        self.clock = clock
        self.network = network
        self.history = history
        self.alarm = alarm
        self.open_store = open_store
        self.sights: dict[str, ClientSight] = {}
        """The clients by the names of their hosts."""


class SimClient:
    """A real client of one partition, on a host of its own."""

    def __init__(
        self,
        name: str,
        partition: int,
        version: int,
        environment: tuple[ClientWorld, Checker, Random],
    ) -> None:
        self.name = name
        self.version = version
        self.stopped = False
        self._world, self._checker, self._random = environment
        self._partition = partition
        self._counters = self._world.history.counters
        self._client: InProcessClient[bytes]
        self._world.sights[name] = ClientSight(
            name, self._checker, self._world.history, lambda: self.position
        )

    @property
    def position(self) -> int:
        """The last transaction that it has read in order."""
        return -1

    def start(self) -> None:
        """Open the client and begin the workload."""
        self._spawn(self._run())

    async def work(self) -> None:
        """Use the client until the run ends."""
        raise NotImplementedError

    async def _run(self) -> None:
        store = await self._world.open_store()
        self._client = await InProcessClient.over(
            Cluster(store, ROOT),
            ClientOptions(tls=PLAINTEXT, long_wait_seconds=_LONG_WAIT_SECONDS),
            owns_store=True,
            spec=CLIENT_SERVER.limited_to(*range(self.version + 1)),
            network=self._world.network.host(self.name),
        )
        await self.work()

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            await work

        self._world.alarm.spawn(guarded())

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(self._random.expovariate(1 / seconds))


class Appender(SimClient):
    """Keeps a few appends open, some under locks, one by one or in batches."""

    def __init__(
        self,
        client_id: int,
        partition: int,
        environment: tuple[ClientWorld, Checker, Random],
    ) -> None:
        random = environment[2]
        super().__init__(f"client-{client_id}", partition, random.choice((4, 5)), environment)
        self.open = 0
        """The number of appends without an outcome."""
        self.first_appends = 0
        """Up to this number of commits in its partition, it appends large batches."""
        self._number = 0
        self._chains = random.choice((1, 4, 8))

    async def work(self) -> None:
        """See SimClient."""
        while not self.stopped and self._checker.committed < self.first_appends:
            supported = await self._append_batch(_FIRST_BATCH)
            await self._pause(_APPEND_SECONDS if supported else UNSUPPORTED_SECONDS)
        for _ in range(self._chains):
            self._spawn(self._append_always())

    async def _append_always(self) -> None:
        while not self.stopped:
            if self.version >= RANGES_SINCE and self._random.random() < _BATCHED:
                count = self._random.choice((1, 2, 4, 12, 12))
                await self._append_batch(count)
            else:
                count = 1
                await self._append_one()
            # A pause as long as that many single appends would take.
            slower = _SLOWER if self._checker.committed > _ENOUGH_APPENDS else 1
            await self._pause(_APPEND_SECONDS * count * slower)

    async def _append_one(self) -> None:
        mark = await self._client.mount(self._partition)
        op = self._operation(mark)
        try:
            place = await self._client.append(
                self._partition,
                op.data,
                header=_HEADER,
                write_locks=_named(op.write),
                read_locks=_named(op.read),
                append_locks=_named(op.append),
                mark=mark,
                timeout=self._timeout(),
            )
        except LockFailed as failed:
            self._refused(op, failed.transaction_id)
        except ClientAhead as ahead:
            raise Violation(Guarantee.DURABLE, f"{self.name}: {ahead}") from ahead
        except AppendUncertain as uncertain:
            self._uncertain(uncertain)
        except ClusterUnreachable:
            self._counters["client: timed out, not in the log"] += 1
            self._checker.client_denied(op)
        else:
            self._committed(op, place)
        self.open -= 1

    async def _append_batch(self, count: int) -> bool:
        """Append a batch of ``count``; return False if the server does not support batches."""
        supported = True
        mark = await self._client.mount(self._partition)
        ops = tuple(self._operation(mark) for _ in range(count))
        batch = Batch(ops)
        for op in ops:
            op.batch = batch
        drafts = [
            Draft(op.data, _HEADER, _named(op.write), _named(op.read), _named(op.append))
            for op in ops
        ]
        try:
            outcomes: list[Appended | Refused | Absent | None] = list(
                await self._client.bulk.append(
                    self._partition, drafts, mark=mark, timeout=self._timeout()
                )
            )
        except ServerTooOld:
            self._counters["client: unsupported"] += len(ops)
            supported = False
            outcomes = [Absent()] * len(ops)
        except ClientAhead as ahead:
            raise Violation(Guarantee.DURABLE, f"{self.name}: {ahead}") from ahead
        except AppendUncertain as uncertain:
            self._uncertain(uncertain)
            outcomes = list(uncertain.outcomes)
        except ClusterUnreachable:
            self._counters["client: timed out, not in the log"] += 1
            outcomes = [Absent()] * len(ops)
        for op, outcome in zip(ops, outcomes, strict=True):
            self._ended(op, outcome)
        self.open -= count
        return supported

    def _ended(self, op: Op, outcome: Appended | Refused | Absent | None) -> None:
        match outcome:
            case Appended(place):
                self._committed(op, place)
            case Refused(conflict):
                self._refused(op, conflict)
            case Absent():
                self._checker.client_denied(op)
            case None:
                pass  # It is in doubt, and may be in the log or not.

    def _committed(self, op: Op, place: int) -> None:
        self._counters["client: committed"] += 1
        self._checker.client_committed(op, place)

    def _refused(self, op: Op, taken_by: int) -> None:
        self._counters["client: lock_failed"] += 1
        mark = self._client._appender.mark(self._partition)
        self._checker.client_locked_out(op, taken_by, mark)

    def _uncertain(self, uncertain: AppendUncertain) -> None:
        if "no outcome within" not in str(uncertain):
            raise Violation(Guarantee.DURABLE, f"{self.name}: {uncertain}") from uncertain
        self._counters["client: timed out, in doubt"] += 1

    def _timeout(self) -> float | None:
        return self._random.uniform(0.01, 1.0) if self._random.random() < _TIMED else None

    def _operation(self, mark: int) -> Op:
        self._number += 1
        data = b"%s/%d/" % (self.name.removeprefix("client-").encode(), self._number)
        data += bytes(self._random.choice((0, 10, 60, 300)))
        op = Op(data, *self._locks())
        if self._random.random() < 0.1:
            op.append = (self._random.choice(_LOCKS).hash(),)
        op.mark = mark
        self._checker.ops[data] = op
        self.open += 1
        return op

    def _locks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        choice = self._random.random()
        a, b = self._random.choice(_LOCKS).hash(), self._random.choice(_LOCKS).hash()
        if choice < 0.5:
            return (), ()
        if choice < 0.8:
            return (a,), ()
        return ((a,), (b,)) if choice < 0.9 else ((), (a, b))


def _named(hashes: tuple[int, ...]) -> list[Lock]:
    return [_BY_HASH[each] for each in hashes]
