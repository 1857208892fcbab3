"""Run one cluster of real nodes from a seed: appends, faults, and checks at the end."""

from __future__ import annotations

from typing_extensions import override

from tests.sim.node_faults import Faults
from tests.sim.sim_cluster import Result, Shape, SimCluster

APPENDS = 100
FAULTS = 100
DEADLINE_SECONDS = 100.0
FINISH_SECONDS = 120.0
SEGMENT_BYTES = (2_000, 8_000)


class NodesRun(SimCluster):
    """A run with many faults. ``rot`` adds flipped bits."""

    def __init__(self, seed: int, *, rot: bool = False, detailed: bool = False) -> None:
        super().__init__(seed, reads_replicas=not rot, detailed=detailed)
        self._rot = rot

    @override
    def choose_shape(self) -> Shape:
        copies = self.random.choice((3, 3, 5))
        return Shape(
            copies,
            partitions=self.random.choice((1, 1, 2)),
            servers=self.random.choice((2, 3)),
            groups=tuple(range(copies + 2)),
            segment_bytes=self.random.choice(SEGMENT_BYTES),
        )

    @override
    async def main(self) -> None:
        cluster = await self.create()
        self.add_clients()
        faults = Faults(
            (self.clock, self.stream(), self.history, self.alarm),
            self.network,
            self.storages,
            self.servers,
            self.partitions,
            self.trouble,
            cluster,
            rot=self._rot,
        )
        faults.start()
        await self.until(self._has_enough, DEADLINE_SECONDS, f"fewer than {APPENDS} committed")
        self.history.note("run", "faults and appends end")
        for partition in self.partitions:
            partition.stop()
        faults.stop()
        await self.until(self.is_quiet, FINISH_SECONDS, "activity does not end")
        for partition in self.partitions:
            partition.check_at_rest()

    def _has_enough(self) -> bool:
        return self.committed >= APPENDS and self.history.faults >= FAULTS


def run_nodes_seed(seed: int, *, rot: bool = False) -> Result:
    """Run one seed, in a process's main thread; a violation is part of the result."""
    result = NodesRun(seed, rot=rot).result()
    if rot:
        broken = result.guarantee
        held = "all guarantees held" if broken is None else f"guarantee violated: {broken.value}"
        result.counters[f"rot: {held}"] += 1
    return result
