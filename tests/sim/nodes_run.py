"""Run one cluster of real nodes from a seed: appends, faults, and checks at the end."""

from __future__ import annotations

import gc
from dataclasses import replace

from typing_extensions import override

from tests.sim.node_faults import ClusterFaults
from tests.sim.sim_cluster import ClusterShape, Result, SimCluster
from waltz_storage.core.log.segment_format import CHECKPOINT_INTERVAL

APPENDS = 100
FAULTS = 100
"""A run goes on until so many appends are committed, and so many faults have happened."""

_DEADLINE_SECONDS = 100.0
"""How long that may take."""

_QUIET_SECONDS = 120.0
"""How long all work may take to end after the last fault."""

_REPAIR_SECONDS = 60.0
"""How long the storages may take to repair all damaged records."""

_SEGMENT_BYTES = (2_000, 8_000)
_LONG_LOG_RATE = 0.1
"""How often the logs of a run pass an index checkpoint of the storages soon after the start."""

_FIRST_APPENDS = CHECKPOINT_INTERVAL - 50
"""The number of transactions with which a long log begins."""

_LONG_SEGMENT_BYTES = 40_000
"""The size of the segments of a long log: the checkpoint then has some hundred entries."""


class NodesRun(SimCluster):
    """A run with many faults.

    ``rot`` adds bits that flip on the disks, which the storages must find and repair.
    """

    def __init__(self, seed: int, *, rot: bool = False, detailed: bool = False) -> None:
        super().__init__(seed, reads_replicas=not rot, detailed=detailed)
        self._rot = rot
        self._first_appends = 0
        """The number of transactions with which each log begins, without pauses."""

    @override
    def choose_shape(self) -> ClusterShape:
        replicas = self.random.choice((3, 3, 5))
        shape = ClusterShape(
            replicas,
            partitions=self.random.choice((1, 1, 2)),
            servers=self.random.choice((2, 3)),
            # Each storage is a group of its own. Two storages are left for changes of replicas.
            groups=tuple(range(replicas + 2)),
            segment_bytes=self.random.choice(_SEGMENT_BYTES),
        )
        if self.random.random() < _LONG_LOG_RATE:
            self._first_appends = _FIRST_APPENDS
            return replace(shape, segment_bytes=_LONG_SEGMENT_BYTES)
        return shape

    @override
    async def main(self) -> None:
        for storage in self.storages.values():
            storage.scrubs = self._rot
        cluster = await self.create()
        self.add_clients(first_appends=self._first_appends)
        faults = ClusterFaults(
            self.environment,
            self.new_random(),
            self.network,
            self.storages,
            self.servers,
            self.partitions,
            self.answer_loss,
            cluster,
            rot=self._rot,
        )
        faults.start()
        too_few = f"fewer than {APPENDS} committed"
        await self.wait_until(self._has_enough, _DEADLINE_SECONDS, too_few)
        self.history.note("run", "faults and appends end")
        for partition in self.partitions:
            partition.stop()
        faults.stop()
        await self.wait_until(
            lambda: faults.replace_refused(at_end=True) and self.is_quiet(),
            _QUIET_SECONDS,
            "activity does not end",
        )
        if self._rot:
            await self._wait_for_repairs()
        for partition in self.partitions:
            partition.check_at_rest()
            if partition.checker.mark > CHECKPOINT_INTERVAL:
                self.history.counters["storage: a log with an index checkpoint"] += 1

    async def _wait_for_repairs(self) -> None:
        """Wait until a pass of the scrubbers finds no damage: the storages have repaired it.

        Records above the local low-water mark are repaired after the next store session has begun,
        so one begins first.
        """
        sessions = {p.partition: p.view.metadata.session_id for p in self.partitions}
        for server in self.servers.values():
            server.crash()
            server.catch_up()
            server.start()

        def new_sessions_are_quiet() -> bool:
            return self.is_quiet() and all(
                p.view.metadata.session_id > sessions[p.partition] for p in self.partitions
            )

        await self.wait_until(new_sessions_are_quiet, _QUIET_SECONDS, "no new session is quiet")
        replicas = [
            (p.partition, self.storages[name].scrubber)
            for p in self.partitions
            for name in p.view.assigned
        ]
        # The pass that is under way may have begun before the last repair.
        needed = [(s.progress.passes if s is not None else 0) + 2 for _, s in replicas]

        def are_repaired() -> bool:
            return all(
                scrubber is not None
                and scrubber.progress.passes >= passes
                and partition not in scrubber.findings.ranges
                for (partition, scrubber), passes in zip(replicas, needed, strict=True)
            )

        await self.wait_until(are_repaired, _REPAIR_SECONDS, "damaged records are not repaired")
        for storage in self.storages.values():
            storage.count_findings()

    def _has_enough(self) -> bool:
        return self.committed >= APPENDS and self.history.faults >= FAULTS


def run_nodes_seed(seed: int, *, rot: bool = False) -> Result:
    """Run one seed, in a process's main thread; a violation is part of the result."""
    result = NodesRun(seed, rot=rot).result()
    # The cluster is garbage in cycles. The callers run many seeds, and collect garbage rarely.
    gc.collect()
    return result
