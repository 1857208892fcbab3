"""Run orders that move, retire, recover and compare replicas while nodes are killed."""

from __future__ import annotations

from typing_extensions import override

from tests.sim.administrator import Administrator, CompareOrder
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.observed_server import SimServer
from tests.sim.sim_cluster import ClusterShape, SimCluster
from waltz.admin.core.move import Move
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import Order
from waltz_storage.core.log.segment_format import HEADER_BYTES

_FIRST_COMMITS = 60
"""The number of appends that are committed before the first order is given."""

_MORE_COMMITS = 30
"""The number of appends that must be committed after each event that could prevent that."""

_COMPARISONS = 4
_PROGRESS_SECONDS = 60.0
"""How long appends, sessions and the end of all work may take."""

_ORDERS_SECONDS = 200.0
"""How long the execution of all orders may take."""

_SEGMENT_BYTES = 4_000
_RESTART_SECONDS = 0.6
_STEPS_WITH_FAULTS = 40
"""In how many steps faults are injected. Then the orders must be executed: while the servers of a
partition are killed all the time, a replica that is switched on again may never catch up."""
_KILL_NODE_WITHIN_SECONDS = 0.02
_KILL_ADMINISTRATOR_WITHIN_SECONDS = 0.1
_FIRST_RECORD = ("0/0000000000000000000.seg", HEADER_BYTES)
"""The file and the position of the first record of partition 0."""


class OrderedRun(SimCluster):
    """Three or four groups of one storage, with a spare one in the first, and an administrator.

    ``kind`` names the orders: move, retire, recover or compare. With ``lost``, one storage that is
    killed stays down until appends were committed without it.
    """

    def __init__(self, seed: int, kind: str, *, lost: bool = False, detailed: bool = False) -> None:
        super().__init__(seed, detailed=detailed)
        self._kind = kind
        # A replica can only be retired if a quorum stays, also while one storage is lost.
        self._replicas = 4 if lost and kind == "retire" else 3
        self._may_lose_storage = lost
        self._steps_with_faults = 0
        self._lost: str | None = None
        """The storage that is down and is not started again by itself."""
        self.administrator: Administrator

    @override
    def choose_shape(self) -> ClusterShape:
        return ClusterShape(
            self._replicas,
            partitions=2 if self._kind == "retire" else 1,
            servers=self.random.choice((2, 3)),
            groups=(*range(self._replicas), 0),
            segment_bytes=_SEGMENT_BYTES,
        )

    @override
    async def main(self) -> None:
        self._names = tuple(self.storages)
        for storage in self.storages.values():
            # An order waits until its replicas take part: it must not wait for the end of the run.
            storage.waits_for_heal = False
        await self.create(follow_assignment=True)
        # With few appends, a replica that lags can catch up.
        self.add_clients(appenders=1)
        self.administrator = Administrator(
            self.shared.network.host("administrator"),
            self.storages,
            self.environment,
            self.new_random(),
            self.open_store,
        )
        await self.wait_for_commits(_FIRST_COMMITS, "before the first order")
        if self._kind in ("recover", "compare"):
            await self._begin_generation()
        await self._execute(self._orders())
        await self.wait_for_commits(_MORE_COMMITS, "after the last order")
        for partition in self.partitions:
            partition.stop()
        for storage in self.storages.values():
            storage.heal()
        for server in self.servers.values():
            server.start()
        await self.wait_until(self.is_quiet, _PROGRESS_SECONDS, "activity does not end")
        for partition in self.partitions:
            partition.check_at_rest()
        await self._compare_at_rest()

    async def _begin_generation(self) -> None:
        """End the present sessions: only records of earlier ones are copied and compared."""
        [partition] = self.partitions
        view, owner = partition.view, partition.owner
        last_session_id = view.metadata.session_id
        assert owner is not None
        self._restart(owner)
        await self.wait_until(
            lambda: (
                view.metadata.session_id > last_session_id
                and view.metadata.generation == view.generation
            ),
            _PROGRESS_SECONDS,
            "no session of a new generation begins",
        )
        await self.wait_for_commits(_MORE_COMMITS, "in a new generation")

    async def _execute(self, orders: list[Order | CompareOrder]) -> None:
        """Have the administrator execute ``orders`` under faults, and wait until it has."""
        administrator = self.administrator
        administrator.before_step = self._inject_faults
        administrator.start(orders)
        not_executed = "the orders are not executed"
        await self.wait_until(
            lambda: administrator.idle or self._lost is not None, _ORDERS_SECONDS, not_executed
        )
        if self._lost is not None:
            await self.wait_for_commits(_MORE_COMMITS, f"without {self._lost}, which is lost")
            self.storages[self._lost].start()
            self._lost = None
        await self.wait_until(lambda: administrator.idle, _ORDERS_SECONDS, not_executed)

    async def _compare_at_rest(self) -> None:
        """Check that replicas are equal, and that a comparison finds a damaged one."""
        administrator = self.administrator
        administrator.before_step = lambda: None
        rotten = self.storages[self.random.choice(self.partitions[0].view.assigned)]
        for damaged in (set[str](), {rotten.name}):
            if damaged:
                rotten.rot_at(*_FIRST_RECORD)
            administrator.start([CompareOrder(p.partition, once=True) for p in self.partitions])
            await self.wait_until(
                lambda: administrator.idle, _ORDERS_SECONDS, "nothing is compared"
            )
            found = administrator.compared[-len(self.partitions)]  # That of partition 0.
            if found.last_id < 0 or found.problems.keys() != damaged:
                raise Violation(Guarantee.READABLE, f"{damaged or 'nothing'} is damaged: {found}")

    def _orders(self) -> list[Order | CompareOrder]:
        first, second, spare = self._names[0], self._names[1], self._names[-1]
        delete = self.random.random() < 0.5
        match self._kind:
            case "move":
                return [Move(0, first, spare, delete), Move(0, spare, first, delete)]
            case "retire":
                return [Retirement(1, delete)]
            case "compare":
                return [CompareOrder(0)] * _COMPARISONS
            case _:
                assert self._kind == "recover"
                emptied = self.storages[second]
                emptied.crash(power_loss=True)
                emptied.wipe()
                # Otherwise servers would bring it up to date before the order begins.
                emptied.starts_switched_off = True
                emptied.start()
                return [ReplicaRecovery(0, second)]

    # ---- faults

    def _inject_faults(self) -> None:
        """Kill a node or the administrator in the middle of the next step."""
        if self._steps_with_faults == _STEPS_WITH_FAULTS:
            return
        self._steps_with_faults += 1
        soon = self.random.random() * _KILL_NODE_WITHIN_SECONDS
        if self.random.random() < 0.6:
            self.clock.after(soon, self.random.choice((self._kill_storage, self._kill_owner)))
        if self.random.random() < 0.3:
            pause = self.random.random() * _KILL_ADMINISTRATOR_WITHIN_SECONDS
            self.clock.after(pause, self.administrator.kill)

    def _kill_storage(self) -> None:
        if not all(storage.up for storage in self.storages.values()):
            return
        storage = self.random.choice(list(self.storages.values()))
        storage.crash(power_loss=self.random.random() < 0.5)
        if self._may_lose_storage:
            self._may_lose_storage = False
            self._lost = storage.name
        else:
            storage.start_later()

    def _kill_owner(self) -> None:
        owner = self.random.choice(self.partitions).owner
        if owner is not None and owner.up:
            self._restart(owner)

    def _restart(self, server: SimServer) -> None:
        server.crash()
        self.clock.after(_RESTART_SECONDS, server.start)
