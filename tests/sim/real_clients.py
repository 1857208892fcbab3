"""Clients of a simulated cluster: what all real clients have, and those that append."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from random import Random

from tests.sim.checker import Checker
from tests.sim.client_wire import CheckedClient
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import Batch, Operation
from tests.sim.run_environment import RunEnvironment
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
from waltz.protocol.client_numbers import APPEND_BATCH_SINCE
from waltz.protocol.locks import Lock
from waltz.testing.cluster import InProcessClient
from waltz.testing.network import MemoryNetwork
from waltz.testing.nodes import ROOT

UNSUPPORTED_SECONDS = 0.2
"""How long a client waits before it tries again what its server does not support."""

_LONG_WAIT_SECONDS = 0.5
_APPEND_PAUSE_SECONDS = 0.02
"""The mean pause of a worker after one append."""
_ENOUGH_APPENDS = 200
_SLOWER = 5
"""The factor of the pauses after `_ENOUGH_APPENDS`: a longer log would only take time."""
_FIRST_BATCH = 100
"""The number of appends in each batch at the beginning of a long log."""
_BATCH_RATE = 0.4
"""How often a client that supports batches appends a batch instead of one append."""
_TIMEOUT_RATE = 0.05
"""How often an append has a timeout, which may be too short."""
_UNMARKED_RATE = 0.3
"""Share of the appends without a checked lock that have no mark."""
_HEADER = 7
_LOCKS = tuple(Lock("sim", number) for number in range(12))
_LOCK_OF_HASH = {lock.hash(): lock for lock in _LOCKS}

OpenStore = Callable[[], Awaitable[UnreliableStore]]


class ClientEnvironment:
    """What all simulated clients use."""

    def __init__(
        self, environment: RunEnvironment, network: MemoryNetwork, open_store: OpenStore
    ) -> None:
        self.history = environment.history
        self.failure = environment.failure
        self.network = network
        self.open_store = open_store
        self.checked: dict[str, CheckedClient] = {}
        """The clients by the names of their hosts."""


class SimClient:
    """A real client of one partition, on a host of its own.

    ``version`` is its newest protocol version. When ``stopped`` is set, it begins nothing more
    except that it reads the log to its end.
    """

    def __init__(
        self,
        name: str,
        partition: int,
        version: int,
        environment: ClientEnvironment,
        checker: Checker,
        random: Random,
    ) -> None:
        self.name = name
        self.version = version
        self.stopped = False
        self._environment = environment
        self._checker = checker
        self._random = random
        self._partition = partition
        self._counters = environment.history.counters
        self._client: InProcessClient[bytes]
        environment.checked[name] = CheckedClient(
            name, checker, environment.history, lambda: self.position
        )

    @property
    def position(self) -> int:
        """The last transaction that it has read in order, -1 for a client that only appends."""
        return -1

    def start(self) -> None:
        """Open the client and begin the workload."""
        self._spawn(self._run())

    async def work(self) -> None:
        """Use the client until the run ends."""
        raise NotImplementedError

    async def _run(self) -> None:
        store = await self._environment.open_store()
        options = ClientOptions(
            tls=PLAINTEXT,
            long_wait_seconds=_LONG_WAIT_SECONDS,
            # Faults that follow each other may keep a partition closed for longer than the default
            # limits. The run checks how long it is closed after the last fault.
            append_timeout=None,
            answer_timeout=None,
        )
        self._client = await InProcessClient.over(
            Cluster(store, ROOT),
            options,
            owns_store=True,
            spec=CLIENT_SERVER.limited_to(*range(self.version + 1)),
            network=self._environment.network.host(self.name),
        )
        await self.work()

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            await work

        self._environment.failure.spawn(guarded())

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(self._random.expovariate(1 / seconds))


class _Call:
    """A call that begins now, with a timeout in seconds (None: no timeout)."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + (inf if timeout is None else timeout)

    def in_time(self) -> bool:
        """Whether the timeout has not passed."""
        return self._loop.time() < self._deadline


class Appender(SimClient):
    """Keeps a few appends open, some under locks, one by one or in batches."""

    def __init__(
        self,
        client_id: int,
        partition: int,
        environment: ClientEnvironment,
        checker: Checker,
        random: Random,
    ) -> None:
        version = random.choice((4, 5, 6, 7, 7))
        super().__init__(f"client-{client_id}", partition, version, environment, checker, random)
        self.num_open = 0
        """The number of appends without an outcome."""
        self.first_appends = 0
        """Up to this number of commits in its partition, it appends large batches."""
        self._num_appends = 0
        """The number of appends so far, from which each append gets its own data."""
        self._workers = random.choice((1, 4, 8))
        """How many appends or batches it keeps open at a time."""

    async def work(self) -> None:
        """See SimClient."""
        while not self.stopped and self._checker.num_committed < self.first_appends:
            supported = await self._append_batch(_FIRST_BATCH)
            await self._pause(_APPEND_PAUSE_SECONDS if supported else UNSUPPORTED_SECONDS)
        for _ in range(self._workers):
            self._spawn(self._append_until_stopped())

    async def _append_until_stopped(self) -> None:
        while not self.stopped:
            if self.version >= APPEND_BATCH_SINCE and self._random.random() < _BATCH_RATE:
                count = self._random.choice((1, 2, 4, 12, 12))
                await self._append_batch(count)
            else:
                count = 1
                await self._append_one()
            # A pause as long as that many single appends would take.
            slower = _SLOWER if self._checker.num_committed > _ENOUGH_APPENDS else 1
            await self._pause(_APPEND_PAUSE_SECONDS * count * slower)

    async def _append_one(self) -> None:
        mark = await self._client.mount(self._partition)
        op = self._new_operation(mark)
        named_mark = None if self._needs_no_mark(op) else mark
        call = _Call(self._timeout())
        try:
            transaction_id = await self._client.append(
                self._partition,
                op.data,
                header=_HEADER,
                write_locks=_locks_of(op.write_locks),
                read_locks=_locks_of(op.read_locks),
                append_locks=_locks_of(op.append_locks),
                mark=named_mark,
                timeout=call.timeout,
            )
        except LockFailed as failed:
            self._refused(op, failed.transaction_id, call.in_time())
        except ClientAhead as ahead:
            raise Violation(Guarantee.DURABLE, f"{self.name}: {ahead}") from ahead
        except AppendUncertain as uncertain:
            self._uncertain(uncertain)
        except ClusterUnreachable:
            self._counters["client: timed out, not in the log"] += 1
            self._checker.client_absent(op)
        else:
            self._committed(op, transaction_id)
        self.num_open -= 1

    async def _append_batch(self, count: int) -> bool:
        """Append a batch of ``count``; return False if the server does not support batches."""
        supported = True
        mark = await self._client.mount(self._partition)
        ops = tuple(self._new_operation(mark) for _ in range(count))
        batch = Batch(ops)
        for op in ops:
            op.batch = batch
        drafts = [
            Draft(
                op.data,
                _HEADER,
                _locks_of(op.write_locks),
                _locks_of(op.read_locks),
                _locks_of(op.append_locks),
            )
            for op in ops
        ]
        call = _Call(self._timeout())
        try:
            outcomes: list[Appended | Refused | Absent | None] = list(
                await self._client.bulk.append(
                    self._partition, drafts, mark=mark, timeout=call.timeout
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
        in_time = call.in_time()
        for op, outcome in zip(ops, outcomes, strict=True):
            self._record_outcome(op, outcome, in_time)
        self.num_open -= count
        return supported

    def _record_outcome(
        self, op: Operation, outcome: Appended | Refused | Absent | None, in_time: bool
    ) -> None:
        match outcome:
            case Appended(transaction_id):
                self._committed(op, transaction_id)
            case Refused(conflict):
                self._refused(op, conflict, in_time)
            case Absent():
                self._checker.client_absent(op)
            case None:
                pass  # It is in doubt, and may be in the log or not.

    def _committed(self, op: Operation, transaction_id: int) -> None:
        self._counters["client: committed"] += 1
        self._checker.client_committed(op, transaction_id)

    def _refused(self, op: Operation, taken_by: int, in_time: bool) -> None:
        """Check a refusal. After its timeout a call does not wait to see the conflict."""
        self._counters["client: lock_failed"] += 1
        mark = self._client._appender.mark(self._partition) if in_time else taken_by
        self._checker.client_refused(op, taken_by, mark)

    def _uncertain(self, uncertain: AppendUncertain) -> None:
        """Count a timeout. Any other reason is a violation: no client is closed or cancelled."""
        if "no outcome within" not in str(uncertain):
            raise Violation(Guarantee.DURABLE, f"{self.name}: {uncertain}") from uncertain
        self._counters["client: timed out, in doubt"] += 1

    def _needs_no_mark(self, op: Operation) -> bool:
        """Whether to send an append without a mark: sometimes, if no lock of it is checked."""
        return not op.write_locks + op.read_locks and self._random.random() < _UNMARKED_RATE

    def _timeout(self) -> float | None:
        return self._random.uniform(0.01, 1.0) if self._random.random() < _TIMEOUT_RATE else None

    def _new_operation(self, mark: int) -> Operation:
        """Return an append with data of its own and random locks, which is about to be sent."""
        self._num_appends += 1
        data = b"%s/%d/" % (self.name.removeprefix("client-").encode(), self._num_appends)
        data += bytes(self._random.choice((0, 10, 60, 300)))
        op = Operation(data, *self._draw_locks())
        if self._random.random() < 0.1:
            op.append_locks = (self._random.choice(_LOCKS).hash(),)
        op.mark = mark
        self._checker.ops[data] = op
        self.num_open += 1
        return op

    def _draw_locks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Draw the hashes of the write locks and of the read locks of an append."""
        choice = self._random.random()
        a, b = self._random.choice(_LOCKS).hash(), self._random.choice(_LOCKS).hash()
        if choice < 0.5:
            return (), ()
        if choice < 0.8:
            return (a,), ()
        return ((a,), (b,)) if choice < 0.9 else ((), (a, b))


def _locks_of(hashes: tuple[int, ...]) -> list[Lock]:
    return [_LOCK_OF_HASH[each] for each in hashes]
