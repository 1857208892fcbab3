"""Run orders that move, retire, recover and compare replicas while nodes are killed."""

from __future__ import annotations

from random import Random

from tests.sim.clock import Clock
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.network import Network
from tests.sim.operator_node import AdminStorage, Compare, OperatorNode
from tests.sim.partition_run import PartitionRun
from waltz.admin.core.move import Move
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import Order
from waltz.protocol.admin import PartitionAvailableRequest
from waltz_storage.core.log.segment_format import HEADER_BYTES

BEGINS_AT = 150
"""The number of commits before the first order is given."""

GOES_ON = 50
COMPARED_TIMES = 4
ALIVE_SECONDS = 60.0
DONE_SECONDS = 200.0
SEGMENT_BYTES = 6_000
_TAKEOVER_SECONDS = 0.3
_KILL_NODE_WITHIN_SECONDS = 0.02
_KILL_CALLER_WITHIN_SECONDS = 0.1
_FIRST_RECORD = ("0/0000000000000000000.seg", HEADER_BYTES)
"""The position of the first record of partition 0."""


class OrderedRun:
    """Three or four groups of one storage, with a spare one in the first, and an operator.

    With ``lost``, one storage that is killed stays down until appends were committed without it.
    """

    def __init__(self, seed: int, kind: str, *, lost: bool = False) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.history = History(self.clock)
        self.network = Network(self.clock, self._stream(), self.history)
        self._kind = kind
        copies = 4 if lost and kind == "retire" else 3
        count = 2 if kind == "retire" else 1
        names = [f"storage{i}:1" for i in range(copies + 1)]
        self.storages = {
            name: AdminStorage(
                name, self.clock, self._stream(), self.network, self.history, SEGMENT_BYTES, count
            )
            for name in names
        }
        self._spare = names[-1]
        groups = {name: i for i, name in enumerate(names)} | {self._spare: 0}
        self.partitions = {
            p: PartitionRun(
                p,
                self.clock,
                self._stream(),
                self.network,
                self.storages,
                self.history,
                reads_replicas=True,
            )
            for p in range(count)
        }
        self.operator = OperatorNode(
            self.clock,
            self._stream(),
            self.network,
            self.storages,
            groups,
            self.partitions,
            self.history,
        )
        self.operator.before_step = self._inject_faults
        self._may_lose = lost
        self._lost: str | None = None
        for storage in self.storages.values():
            storage.start()
        for partition in self.partitions.values():
            partition.metadata.assign(tuple(names[:copies]))
            partition.metadata.give(next(iter(partition.servers)))
            # With one appender, a replica that lags can catch up.
            for appender in partition.appenders[1:]:
                appender.stopped = True

    def run(self) -> None:
        """Run to the end; raises Violation."""
        self._commit(BEGINS_AT, "before the first order")
        if self._kind in ("recover", "compare"):
            # Only records of earlier sessions are copied to replicas, and compared.
            metadata = self.partitions[0].metadata
            metadata.give(metadata.owner)
            self._until(
                lambda: metadata.value.generation == metadata.generation,
                ALIVE_SECONDS,
                "no session of a new generation begins",
            )
            self._commit(GOES_ON, "in a new generation")
        self.operator.orders = self._orders()
        self.operator.start()
        self._until(
            lambda: self.operator.idle or self._lost is not None,
            DONE_SECONDS,
            "the orders are not executed",
        )
        if self._lost is not None:
            self._commit(GOES_ON, f"without {self._lost}, which is lost")
            self.storages[self._lost].start()
            self._lost = None
        self._until(lambda: self.operator.idle, DONE_SECONDS, "the orders are not executed")
        self._commit(GOES_ON, "after the last order")
        for partition in self.partitions.values():
            partition.stop()
        for storage in self.storages.values():
            storage.heal()
        self._until(
            lambda: all(p.is_quiet() for p in self.partitions.values()),
            ALIVE_SECONDS,
            "activity does not end",
        )
        for partition in self.partitions.values():
            partition.check_at_rest()
        self._compare_at_rest()

    def _compare_at_rest(self) -> None:
        """Check that replicas are equal, and that a comparison finds a damaged one."""
        self.operator.before_step = lambda: None
        replicas = self.partitions[0].metadata.replicas
        rotten = self.storages[self.random.choice(replicas)]
        for damaged in (set[str](), {rotten.name}):
            if damaged:
                rotten.rot_at(*_FIRST_RECORD)
            self.operator.orders = [Compare(partition, once=True) for partition in self.partitions]
            self.operator.start()
            self._until(lambda: self.operator.idle, DONE_SECONDS, "nothing is compared")
            found = self.operator.compared[-len(self.partitions)]
            if found.last_id < 0 or found.problems.keys() != damaged:
                raise Violation(Guarantee.READABLE, f"{damaged or 'nothing'} is damaged: {found}")

    def _orders(self) -> list[Order | Compare]:
        first, second, spare = "storage0:1", "storage1:1", self._spare
        delete = self.random.random() < 0.5
        if self._kind == "move":
            return [Move(0, first, spare, delete), Move(0, spare, first, delete)]
        if self._kind == "retire":
            return [Retirement(1, delete)]
        if self._kind == "compare":
            return [Compare(0)] * COMPARED_TIMES
        emptied = self.storages[second]
        emptied.crash(power=True)
        emptied.wipe()
        emptied.start()
        # Otherwise servers would bring it up to date before the operator observes it.
        emptied.administer(PartitionAvailableRequest(0, (0,), False), lambda _: None)
        return [ReplicaRecovery(0, second)]

    # ---- faults

    def _inject_faults(self) -> None:
        """Kill a node or the operator in the middle of the next step."""
        soon = self.random.random() * _KILL_NODE_WITHIN_SECONDS
        if self.random.random() < 0.6:
            self.clock.after(soon, self.random.choice((self._kill_storage, self._kill_owner)))
        if self.random.random() < 0.3:
            self.clock.after(self.random.random() * _KILL_CALLER_WITHIN_SECONDS, self.operator.kill)

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
        partition = self.random.choice(list(self.partitions.values()))
        owner = partition.servers[partition.metadata.owner]
        others = [s for s in partition.servers.values() if s.up and s is not owner]
        if owner.up and others:
            owner.crash()
            successor = self.random.choice(others)
            self.clock.after(_TAKEOVER_SECONDS, partition.metadata.give, successor.name)
            self.clock.after(2 * _TAKEOVER_SECONDS, owner.start)

    # ---- progress

    def _commit(self, count: int, when: str) -> None:
        """Advance time until ``count`` more appends are committed in every partition."""
        wanted = {p: run.checker.committed + count for p, run in self.partitions.items()}
        self._until(
            lambda: all(self.partitions[p].checker.committed >= n for p, n in wanted.items()),
            ALIVE_SECONDS,
            f"no appends are committed {when}",
        )

    def _until(self, condition: object, seconds: float, otherwise: str) -> None:
        assert callable(condition)
        if not self.clock.run(condition, self.clock.now + seconds):
            state = "\n".join(partition.state() for partition in self.partitions.values())
            raise Violation(Guarantee.ALIVE, f"{otherwise}: {state}")

    def _stream(self) -> Random:
        return Random(self.random.getrandbits(64))
