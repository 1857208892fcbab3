"""An administrator's processes, which execute orders and may be killed at any time.

The plans, their execution, the observation, the copy and the admin clients are the real ones. An
*order* is a change of the cluster that consists of steps (`waltz.admin.core.steps`), or here also a
comparison of replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.observed_storage import SimStorage
from tests.sim.real_clients import OpenStore
from tests.sim.run_environment import RunEnvironment
from waltz.admin.core.comparison import ComparisonResult
from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import DropReplicas, Order, Step
from waltz.admin.execution import OrderExecutor
from waltz.admin.order_progress import NotPossible, Stalled, carry_out
from waltz.admin.replica_comparison import compare_replicas
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.testing.network import MemoryHost
from waltz.testing.nodes import ROOT

_ANSWER_SECONDS = 1.0
_RETRY_SECONDS = 0.05
_RESTART_SECONDS = 0.1
"""The mean time from the end of a process to the start of the next."""
_LAG_ALLOWED = 50
_COPY_BATCH = 20
_COMPARED_SLICE = 20


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
        environment: RunEnvironment,
        random: Random,
        open_store: OpenStore,
    ) -> None:
        self.compared: list[ComparisonResult] = []
        """The results of comparisons."""
        self.before_step: Callable[[], None] = lambda: None
        """Called before each step and each comparison, to inject faults."""
        self._host = host
        self._storages = storages
        self._clock = environment.clock
        self._history = environment.history
        self._failure = environment.failure
        self._random = random
        self._open_store = open_store
        self._orders: list[Order | CompareOrder] = []
        """The orders that were not executed yet."""
        self._process: asyncio.Task[None] | None = None

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
        if self._process is not None and not self.idle:
            self._history.fault("administrator", "administrator killed")
            self._process.cancel()
            self._process = None
            self._clock.after(self._random.expovariate(1 / _RESTART_SECONDS), self._start)

    def _start(self) -> None:
        self._process = self._failure.spawn(self._execute_all())

    async def _execute_all(self) -> None:
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
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            await store.close()

    async def _execute(self, cluster: Cluster, order: Order) -> bool:
        """Execute an order; return False if it stalled and must be repeated. Raises Violation."""
        executor = OrderExecutor(
            cluster,
            PLAINTEXT,
            answer_seconds=_ANSWER_SECONDS,
            copy_seconds=_ANSWER_SECONDS,
            lag_allowed=_LAG_ALLOWED,
            copy_batch=_COPY_BATCH,
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

    def note_begin(self, step: Step) -> None:
        """Note a step that is about to be performed, and inject faults."""
        self._history.note("administrator", str(step))
        self.before_step()

    def note_success(self, step: Step) -> None:
        """Note a step that has succeeded."""
        self._history.counters[f"administrator: {type(step).__name__}"] += 1
        if isinstance(step, DropReplicas) and step.delete_files:
            for partition in step.partitions:
                self._storages[step.storage].replicas[partition].reset(-1)

    async def _compare(self, cluster: Cluster, order: CompareOrder) -> bool:
        """Compare replicas; return False if that must be repeated. Raises Violation."""
        self.before_step()
        found = await compare_replicas(
            cluster,
            PLAINTEXT,
            order.partition,
            slice_ids=_COMPARED_SLICE,
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
    """Implements `waltz.admin.StepPerformer`: faults are injected before each step."""

    def __init__(self, executor: OrderExecutor, administrator: Administrator) -> None:
        self._executor = executor
        self._administrator = administrator

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """See StepPerformer."""
        return await self._executor.observe(scope)

    async def perform(self, step: Step) -> None:
        """See StepPerformer."""
        self._administrator.note_begin(step)
        await self._executor.perform(step)
        self._administrator.note_success(step)
