"""Restore storages from copies of the present store session, with another one absent."""

from __future__ import annotations

import asyncio

from typing_extensions import override

from tests.sim.sim_cluster import ClusterShape, SimCluster

_ROUNDS = 4
_COMMITS = 25
"""The number of appends that are committed in each part of a round."""

_PROGRESS_SECONDS = 60.0
"""How long appends and the end of all work may take."""

_WITHOUT_SECONDS = 1.0
"""How long the restored storage is alone with the one that was absent before, on average."""


class RestoredRun(SimCluster):
    """Three storages and one server, which does not end: it knows what a restored disk lacks."""

    @override
    def choose_shape(self) -> ClusterShape:
        return ClusterShape(3, partitions=1, servers=1, groups=(0, 1, 2), segment_bytes=4_000)

    @override
    async def main(self) -> None:
        for storage in self.storages.values():
            storage.waits_for_heal = False
        await self.create()
        self.add_clients(appenders=2)
        for _ in range(_ROUNDS):
            await self._restore_one()
        await self.wait_for_commits(_COMMITS, "after the last round")
        for partition in self.partitions:
            partition.stop()
        for storage in self.storages.values():
            storage.heal()
        await self.wait_until(self.is_quiet, _PROGRESS_SECONDS, "activity does not end")
        for partition in self.partitions:
            partition.check_at_rest()

    async def _restore_one(self) -> None:
        """Restore one storage, and let it be alone with one that lacks records, too."""
        # One that was restored before must have been filled: it is the only one with a fault.
        await self.wait_until(
            self._all_take_part, _PROGRESS_SECONDS, "not all storages take part in a session"
        )
        await self.wait_for_commits(_COMMITS, "before a copy")
        storages = list(self.storages.values())
        restored, behind, complete = self.random.sample(storages, len(storages))
        restored.take_snapshot()
        behind.crash(power_loss=self.random.random() < 0.5)
        await self.wait_for_commits(_COMMITS, "without one storage")
        restored.crash(power_loss=True)
        restored.restore_snapshot()
        complete.crash(power_loss=self.random.random() < 0.5)
        restored.start()
        behind.start()
        await asyncio.sleep(self.random.expovariate(1 / _WITHOUT_SECONDS))
        complete.start()

    def _all_take_part(self) -> bool:
        [partition] = self.partitions
        hosted = partition.hosted
        return hosted is not None and hosted.core.store.active_replicas == set(self.storages)
