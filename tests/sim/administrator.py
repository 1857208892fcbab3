"""An administrator's processes, which execute orders and may be killed between any two answers.

The plans, their execution, the observation, the copy and the admin clients are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.sim.alarm import Alarm
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.observed_storage import SimStorage
from tests.sim.real_clients import OpenStore
from waltz.admin.core.comparison import ComparisonResult
from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import DropReplicas, Order, Step
from waltz.admin.execution import NotPossible, OrderExecutor, Stalled, carry_out
from waltz.admin.replica_comparison import compare_replicas
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.testing.network import MemoryHost
from waltz.testing.nodes import ROOT

ANSWER_SECONDS = 1.0
PAUSE_SECONDS = 0.05
RESTART_SECONDS = 0.1
LAG_ALLOWED = 50
COPIED_AT_ONCE = 20
COMPARED_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class CompareOrder:
    """Compare a partition's replicas, again and again until all of them could be read.

    With ``once``, they are compared once, whatever the result.
    """

    partition: int
    once: bool = False


class Administrator:
    """One process after another that executes orders, each from the state that it observes."""

    def __init__(
        self,
        host: MemoryHost,
        storages: Mapping[str, SimStorage],
        environment: tuple[LoopClock, Random, History, Alarm],
        open_store: OpenStore,
    ) -> None:
        self.compared: list[ComparisonResult] = []
        """The results of comparisons."""
        self.before_step: Callable[[], None] = lambda: None
        self._host = host
        self._storages = storages
        self._clock, self._random, self._history, self._alarm = environment
        self._open_store = open_store
        self._orders: list[Order | CompareOrder] = []
        self._work: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether every order was executed."""
        return not self._orders

    def start(self, orders: Sequence[Order | CompareOrder]) -> None:
        """Start a process that executes ``orders`` in their order."""
        assert self.idle
        self._orders = list(orders)
        self._start()

    def kill(self) -> None:
        """End the process at once; another one starts a little later."""
        if self._work is not None and not self.idle:
            self._history.fault("administrator", "administrator killed")
            self._work.cancel()
            self._work = None
            self._clock.after(self._random.expovariate(1 / RESTART_SECONDS), self._start)

    def _start(self) -> None:
        self._work = self._alarm.spawn(self._carry_out())

    async def _carry_out(self) -> None:
        store = await self._open_store()
        try:
            cluster = Cluster(store, ROOT)
            while self._orders:
                order = self._orders[0]
                if isinstance(order, CompareOrder):
                    finished = await self._compare(cluster, order)
                else:
                    finished = await self._execute(cluster, order)
                if finished:
                    self._history.note("administrator", f"done: {order}")
                    self._orders.pop(0)
                else:
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await store.close()

    async def _execute(self, cluster: Cluster, order: Order) -> bool:
        executor = OrderExecutor(
            cluster,
            PLAINTEXT,
            answer_seconds=ANSWER_SECONDS,
            lag_allowed=LAG_ALLOWED,
            copy_batch=COPIED_AT_ONCE,
            network=self._host,
        )
        try:
            await carry_out(order, _StepObserver(executor, self))
        except Stalled as stalled:
            self._history.note("administrator", str(stalled))
            return False
        except NotPossible as refused:
            raise Violation(Guarantee.ALIVE, f"{order} is refused: {refused}") from refused
        return True

    def begins(self, step: Step) -> None:
        """Note a step that is about to be performed."""
        self._history.note("administrator", str(step))
        self.before_step()

    def performed(self, step: Step) -> None:
        """Note a step that has succeeded."""
        self._history.counters[f"administrator: {type(step).__name__}"] += 1
        if isinstance(step, DropReplicas) and step.delete_files:
            for partition in step.partitions:
                self._storages[step.storage].replicas[partition].reset(-1)

    async def _compare(self, cluster: Cluster, order: CompareOrder) -> bool:
        self.before_step()
        found = await compare_replicas(
            cluster,
            PLAINTEXT,
            order.partition,
            slice_ids=COMPARED_AT_ONCE,
            network=self._host,
        )
        self._history.note("administrator", f"compared: {found}")
        if found.difference is not None:
            raise Violation(Guarantee.SAME, f"replicas differ: {found}")
        if not found.is_sound and not order.once:
            return False
        self._history.counters["administrator: comparison"] += 1
        self.compared.append(found)
        return True


class _StepObserver:
    """Implements `waltz.admin.execution.StepPerformer`: faults are injected before each step."""

    def __init__(self, executor: OrderExecutor, administrator: Administrator) -> None:
        self._executor = executor
        self._administrator = administrator

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """See StepPerformer."""
        return await self._executor.observe(scope)

    async def perform(self, step: Step) -> None:
        """See StepPerformer."""
        self._administrator.begins(step)
        await self._executor.perform(step)
        self._administrator.performed(step)
