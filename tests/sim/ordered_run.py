"""Run orders that move, retire, recover and compare replicas while nodes are killed."""

from __future__ import annotations

from typing_extensions import override

from tests.sim.administrator import Administrator, CompareOrder
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.observed_server import SimServer
from tests.sim.sim_cluster import Shape, SimCluster
from waltz.admin.core.move import Move
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import Order
from waltz_storage.core.log.segment_format import HEADER_BYTES

BEGINS_AT = 60
"""The number of commits before the first order is given."""

GOES_ON = 30
COMPARED_TIMES = 4
ALIVE_SECONDS = 60.0
DONE_SECONDS = 200.0
SEGMENT_BYTES = 4_000
_RESTART_SECONDS = 0.6
_KILL_NODE_WITHIN_SECONDS = 0.02
_KILL_CALLER_WITHIN_SECONDS = 0.1
_FIRST_RECORD = ("0/0000000000000000000.seg", HEADER_BYTES)
"""The position of the first record of partition 0."""


class OrderedRun(SimCluster):
    """Three or four groups of one storage, with a spare one in the first, and an administrator.

    With ``lost``, one storage that is killed stays down until appends were committed without it.
    """

    def __init__(self, seed: int, kind: str, *, lost: bool = False, detailed: bool = False) -> None:
        super().__init__(seed, detailed=detailed)
        self._kind = kind
        self._copies = 4 if lost and kind == "retire" else 3
        self._may_lose = lost
        self._lost: str | None = None
        self.administrator: Administrator

    @override
    def choose_shape(self) -> Shape:
        return Shape(
            self._copies,
            partitions=2 if self._kind == "retire" else 1,
            servers=self.random.choice((2, 3)),
            groups=(*range(self._copies), 0),
            segment_bytes=SEGMENT_BYTES,
        )

    @override
    async def main(self) -> None:
        self._names = tuple(self.storages)
        await self.create(follow_assignment=True)
        # With few appends, a replica that lags can catch up.
        self.add_clients(appenders=1)
        self.administrator = Administrator(
            self.world.network.host("administrator"),
            self.storages,
            (self.clock, self.stream(), self.history, self.alarm),
            self.open_store,
        )
        await self._commit(BEGINS_AT, "before the first order")
        if self._kind in ("recover", "compare"):
            await self._begin_generation()
        await self._carry_out(self._orders())
        await self._commit(GOES_ON, "after the last order")
        for partition in self.partitions:
            partition.stop()
        for storage in self.storages.values():
            storage.heal()
        for server in self.servers.values():
            server.start()
        await self.until(self.is_quiet, ALIVE_SECONDS, "activity does not end")
        for partition in self.partitions:
            partition.check_at_rest()
        await self._compare_at_rest()

    async def _begin_generation(self) -> None:
        """End the present sessions: only records of earlier ones are copied and compared."""
        [partition] = self.partitions
        before = partition.metadata.value.session_id
        owner = partition.owner
        assert owner is not None
        self._restart(owner)
        view = partition.metadata
        await self.until(
            lambda: view.value.session_id > before and view.value.generation == view.generation,
            ALIVE_SECONDS,
            "no session of a new generation begins",
        )
        await self._commit(GOES_ON, "in a new generation")

    async def _carry_out(self, orders: list[Order | CompareOrder]) -> None:
        administrator = self.administrator
        administrator.before_step = self._inject_faults
        administrator.start(orders)
        await self.until(
            lambda: administrator.idle or self._lost is not None,
            DONE_SECONDS,
            "the orders are not executed",
        )
        if self._lost is not None:
            await self._commit(GOES_ON, f"without {self._lost}, which is lost")
            self.storages[self._lost].start()
            self._lost = None
        await self.until(lambda: administrator.idle, DONE_SECONDS, "the orders are not executed")

    async def _compare_at_rest(self) -> None:
        """Check that replicas are equal, and that a comparison finds a damaged one."""
        administrator = self.administrator
        administrator.before_step = lambda: None
        rotten = self.storages[self.random.choice(self.partitions[0].metadata.replicas)]
        for damaged in (set[str](), {rotten.name}):
            if damaged:
                rotten.rot_at(*_FIRST_RECORD)
            administrator.start([CompareOrder(p.partition, once=True) for p in self.partitions])
            await self.until(lambda: administrator.idle, DONE_SECONDS, "nothing is compared")
            found = administrator.compared[-len(self.partitions)]
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
                return [CompareOrder(0)] * COMPARED_TIMES
            case _:
                emptied = self.storages[second]
                emptied.crash(power=True)
                emptied.wipe()
                # Otherwise servers would bring it up to date before the order begins.
                emptied.starts_switched_off = True
                emptied.start()
                return [ReplicaRecovery(0, second)]

    # ---- faults

    def _inject_faults(self) -> None:
        """Kill a node or the administrator in the middle of the next step."""
        soon = self.random.random() * _KILL_NODE_WITHIN_SECONDS
        if self.random.random() < 0.6:
            self.clock.after(soon, self.random.choice((self._kill_storage, self._kill_owner)))
        if self.random.random() < 0.3:
            pause = self.random.random() * _KILL_CALLER_WITHIN_SECONDS
            self.clock.after(pause, self.administrator.kill)

    def _kill_storage(self) -> None:
        if not all(storage.up for storage in self.storages.values()):
            return
        storage = self.random.choice(list(self.storages.values()))
        storage.crash(power=self.random.random() < 0.5)
        if self._may_lose:
            self._may_lose = False
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

    async def _commit(self, count: int, when: str) -> None:
        """Wait until ``count`` more appends are committed in every partition."""
        wanted = {run: run.checker.committed + count for run in self.partitions}
        await self.until(
            lambda: all(run.checker.committed >= number for run, number in wanted.items()),
            ALIVE_SECONDS,
            f"no appends are committed {when}",
        )
