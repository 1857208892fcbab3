"""Simulate the cluster's operator, which executes orders and may be killed at any step.

The plans, the admin client, the offline copy and the storages' admin handlers are the real ones;
only the connections are not. Coroutines wait only for virtual time and for answers of storages.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, cast

from tests.sim.clock import Clock
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.network import Channel, Network
from tests.sim.partition_run import PartitionRun
from tests.sim.storage_node import StorageNode, deliver
from waltz.admin.core.comparison import ComparisonResult, RangeSum, comparison_of
from waltz.admin.core.replicas import (
    PartitionView,
    ReplicaObservation,
    StorageReplicas,
    committed_by,
)
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    Done,
    Order,
    Refuse,
    RegisterStorage,
    Step,
    UnregisterStorage,
    Wait,
)
from waltz.admin.execution import perform_at_storage
from waltz.admin.offline_copy import CopyFailed, copy_offline
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.core.formats import (
    ConnectionMetadata,
    GroupDescriptor,
    ReplicaAssignments,
)
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.net import ConnectionLost, RemoteFailure, RpcConnection
from waltz.protocol import admin, storage
from waltz_storage.core.engine.engine import Arrival
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.admin_handler import AdminHandler

ANSWER_SECONDS = 0.3
PAUSE_SECONDS = 0.05
RESTART_SECONDS = 0.1
LAG_ALLOWED = 50
COPIED_AT_ONCE = 100
COMPARED_AT_ONCE = 40

Resume = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Compare:
    """An order to compare a partition's replicas, repeated until all of them could be read.

    With ``once``, they are compared once, whatever the result.
    """

    partition: int
    once: bool = False


class AdminStorage(StorageNode):
    """A storage node with an admin port."""

    def administer(self, request: admin.Request, reply: Resume) -> None:
        """Handle an admin request; there is no answer while the node is down."""
        if not self.up or self._directory is None:
            return

        def answered(answer: Any) -> None:
            if (
                isinstance(request, admin.PartitionAssignmentRequest)
                and request.delete_files
                and isinstance(answer, admin.AdminSuccessResponse)
            ):
                for partition in request.partitions:
                    self.replicas[partition].reset(-1)
            reply(answer)

        handler = AdminHandler(self._directory, self._submit, deliver, Scrubber(0, 0.0))
        self._guarded(self._incarnation, handler.handle, request, 1, answered)

    def _submit(self, arrivals: Any) -> None:
        news: list[Arrival] = list(arrivals)
        self._news += news
        self._step()


class _Awaited(Protocol):
    def begin(self, resume: Resume) -> None:
        """Start; ``resume`` gets the outcome, or an exception."""


class _Await:
    """Passes an awaited object to the driver of the coroutine."""

    def __init__(self, awaited: _Awaited) -> None:
        self._awaited = awaited

    def __await__(self) -> Generator[_Awaited, Any, Any]:
        return (yield self._awaited)


class _Sleep:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def begin(self, resume: Resume) -> None:
        self._clock.after(self._seconds, resume, None)


class _Request:
    """One request to a storage, on either port. The answer may be lost."""

    def __init__(self, network: Network, node: AdminStorage, request: Any) -> None:
        self._network = network
        self._node = node
        self._request = request

    def begin(self, resume: Resume) -> None:
        clock = self._network.clock
        clock.after(ANSWER_SECONDS, resume, TimeoutError())

        def reply(answer: object) -> None:
            clock.after(self._network.delay(), resume, answer)

        if isinstance(self._request, storage.Request):
            channel = cast(Channel, _OneWay(reply))
            clock.after(self._network.delay(), self._node.received, channel, self._request)
        else:
            clock.after(self._network.delay(), self._node.administer, self._request, reply)


class _OneWay:
    """The storage's end of a connection to its storage port."""

    def __init__(self, reply: Resume) -> None:
        self._reply = reply

    def send(self, _sender: object, answer: object) -> None:
        self._reply(answer)


class _Wire:
    """Replaces an `RpcConnection`."""

    def __init__(self, network: Network, node: AdminStorage) -> None:
        self._network = network
        self._node = node
        self._seq = 0

    async def call(self, make: Callable[[int], Any]) -> Any:
        self._seq += 1
        question = _Request(self._network, self._node, make(self._seq))
        answer = await _Await(question)
        if isinstance(answer, admin.AdminFailureResponse | storage.FailureResponse):
            raise RemoteFailure(answer.failure.message)
        return answer


class OperatorNode:
    """One process after another that executes orders, each from the state that it observes."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        network: Network,
        storages: Mapping[str, AdminStorage],
        groups: Mapping[str, int],
        partitions: Mapping[int, PartitionRun],
        history: History,
    ) -> None:
        self.orders: list[Order | Compare] = []
        self.compared: list[ComparisonResult] = []
        """The results of comparisons."""
        self.before_step: Callable[[], None] = lambda: None
        self._clock = clock
        self._random = random
        self._network = network
        self._storages = storages
        self._groups = groups
        self._partitions = partitions
        self._history = history
        self._work: Coroutine[Any, Any, None] | None = None
        self._waits = 0

    @property
    def idle(self) -> bool:
        """Whether every order was executed."""
        return not self.orders

    def start(self) -> None:
        """Start a process without any state of an earlier one."""
        if self._work is None:
            self._work = self._carry_out()
            self._continue(self._waits, None)

    def kill(self) -> None:
        """End the process at once; another one starts a little later."""
        if self._work is not None and not self.idle:
            self._history.fault("operator", "operator killed")
            self._work.close()
            self._work = None
            self._waits += 1
            self._clock.after(self._random.expovariate(1 / RESTART_SECONDS), self.start)

    def _continue(self, wait: int, outcome: object) -> None:
        """Resume the coroutine, unless its process has ended."""
        if wait != self._waits or self._work is None:
            return
        self._waits += 1
        wait, work = self._waits, self._work
        try:
            if isinstance(outcome, BaseException):
                awaited = work.throw(outcome)
            else:
                awaited = work.send(outcome)
        except StopIteration:
            self._work = None
            return
        awaited.begin(lambda result: self._continue(wait, result))

    async def _carry_out(self) -> None:
        while self.orders:
            order = self.orders[0]
            if isinstance(order, Compare):
                await self._compare(order)
                continue
            match order.next_step(await self._observe()):
                case Done():
                    self._history.note("operator", f"done: {order}")
                    self.orders.pop(0)
                case Refuse(reason):
                    raise Violation(Guarantee.ALIVE, f"{order} is refused: {reason}")
                case Wait(reason):
                    self._history.detail("operator", "waits: {}", reason)
                    await self._sleep()
                case step:
                    self.before_step()
                    await self._try(step)

    async def _try(self, step: Step) -> None:
        self._history.note("operator", str(step))
        try:
            await self._perform(step)
            self._history.counters[f"operator: {type(step).__name__}"] += 1
        except (ConnectionLost, CopyFailed, RemoteFailure, TimeoutError) as problem:
            self._history.note("operator", f"that failed: {problem!r}")
            await self._sleep()

    async def _perform(self, step: Step) -> None:
        match step:
            case CopyReplica(source, destination, partition, overwrite):
                port = cast(RpcConnection, _Wire(self._network, self._storages[destination]))
                await copy_offline(
                    self._admin(source),
                    self._admin(destination),
                    port,
                    partition,
                    batch_size=COPIED_AT_ONCE,
                    progress=lambda _at, _last: None,
                    overwrite=overwrite,
                )
            case ChangeAssignment(changes):
                if all(
                    frozenset(self._partitions[c.partition].metadata.replicas) == c.expected
                    for c in changes
                ):
                    for change in changes:
                        replicas = tuple(name for name in self._storages if name in change.wanted)
                        self._partitions[change.partition].metadata.assign(replicas)
            case RegisterStorage() | UnregisterStorage():
                raise AssertionError(f"no order of this simulation registers storages: {step}")
            case _:
                await perform_at_storage(self._admin(step.storage), step)

    async def _compare(self, order: Compare) -> None:
        observed = await self._observe()
        view = observed.partitions[order.partition]
        comparison = comparison_of(observed, view, slice_ids=COMPARED_AT_ONCE)
        self.before_step()
        while (wanted_range := comparison.next_range) is not None:
            answers = {
                storage: await self._sum(storage, order.partition, *wanted_range)
                for storage in comparison.storages
            }
            comparison.add_sums(answers)
        found = comparison.result
        self._history.note("operator", f"compared: {found}")
        if found.difference is not None:
            raise Violation(Guarantee.SAME, f"replicas differ: {found}")
        if found.is_sound or order.once:
            self._history.counters["operator: Compare"] += 1
            self.compared.append(found)
            self.orders.pop(0)
        else:
            await self._sleep()

    async def _sum(self, name: str, partition: int, first_id: int, last_id: int) -> RangeSum | str:
        try:
            return await self._admin(name).range_checksum(partition, first_id, last_id)
        except (RemoteFailure, TimeoutError) as problem:
            return repr(problem)

    async def _observe(self) -> ReplicaObservation:
        views = {p: self._view(p, run) for p, run in self._partitions.items()}
        first = {name: await self._ask(name) for name in self._storages}
        committed = committed_by(views.values(), first)
        reports = {name: await self._ask(name) for name in self._storages}
        return ReplicaObservation(
            self._maps(), len(self._partitions), views, reports, LAG_ALLOWED, committed
        )

    def _maps(self) -> StorageMaps:
        """Return the storage maps that ZooKeeper would have."""
        held = {
            name: tuple(p for p, run in self._partitions.items() if name in run.metadata.replicas)
            for name in self._storages
        }
        groups, ports = GroupDescriptor(self._groups), ConnectionMetadata(dict.fromkeys(held, 1))
        return StorageMaps(groups, ports, ReplicaAssignments(held))

    async def _ask(self, name: str) -> StorageReplicas:
        try:
            states = await self._admin(name).states()
        except (RemoteFailure, TimeoutError):
            return StorageReplicas(problem="it does not answer")
        return StorageReplicas({state.partition: state for state in states})

    def _view(self, partition: int, run: PartitionRun) -> PartitionView:
        metadata = run.metadata
        core = run.servers[metadata.owner].core
        problem = None if core is not None and core.store.is_open else "it is not open"
        return PartitionView(partition, frozenset(metadata.replicas), metadata.value, problem)

    def _admin(self, name: str) -> StorageAdmin:
        return StorageAdmin(cast(RpcConnection, _Wire(self._network, self._storages[name])))

    async def _sleep(self) -> None:
        await _Await(_Sleep(self._clock, PAUSE_SECONDS))
