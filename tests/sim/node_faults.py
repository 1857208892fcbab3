"""Inject faults into a cluster one after the other, never more than it must tolerate.

The faults here are those of machines, disks and the network; `partition_faults` has those of the
server, the metadata and the replicas of one partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.sim.damage import Damage
from tests.sim.faulty_network import FaultyNetwork
from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_server import SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.partition_faults import PartitionFaults
from tests.sim.run_environment import RunEnvironment
from tests.sim.unreliable_store import AnswerLoss
from waltz.metadata.cluster import Cluster

_FIRST_SECONDS = 0.5
"""When the first fault is injected: all nodes have started by then."""

_PAUSE_SECONDS = (0.01, 0.03, 0.15)
"""The mean pauses between two faults; one is drawn for each pause."""


class ClusterFaults:
    """The faults of a cluster. ``rot`` adds flipped bits, on a minority of the disks."""

    def __init__(
        self,
        environment: RunEnvironment,
        random: Random,
        network: FaultyNetwork,
        storages: Mapping[str, SimStorage],
        servers: Mapping[str, SimServer],
        partitions: Sequence[NodesPartition],
        answer_loss: AnswerLoss,
        cluster: Cluster,
        *,
        rot: bool,
    ) -> None:
        self._clock = environment.clock
        self._history = environment.history
        self._random = random
        self._network = network
        self._storages = storages
        self._servers = servers
        self._damage = Damage(storages, partitions)
        self._stopped = False
        self._partition_faults = [
            PartitionFaults(
                environment,
                Random(random.getrandbits(64)),
                network,
                storages,
                servers,
                partition,
                self._damage,
                answer_loss,
                cluster,
            )
            for partition in partitions
        ]
        # A fault that is listed twice is twice as likely.
        self._choices = [
            self._kill_storage,
            self._kill_storage,
            self._lose_power,
            self._lose_power_soon,
            self._lose_disk,
            self._lose_disk,
            self._fail_flush,
            self._fill_disk,
            self._network.cut_one,
            self._slow_network,
        ]
        if rot:
            self._choices.append(self._rot)

    def start(self) -> None:
        """Begin with faults."""
        self._clock.after(_FIRST_SECONDS, self._inject_faults)

    def stop(self) -> None:
        """End all faults, and repair everything except disks."""
        self._stopped = True
        for each in self._partition_faults:
            each.cut_replica()
        self._network.heal()
        for storage in self._storages.values():
            storage.heal()
        self.replace_refused()
        for each in self._partition_faults:
            each.stop()
        for server in self._servers.values():
            server.catch_up()
            server.start()

    def _inject_faults(self) -> None:
        if not self._stopped:
            partition = self._random.choice(self._partition_faults)
            self._random.choice([*self._choices, *partition.choices])()
            self._clock.after(
                self._random.expovariate(1 / self._random.choice(_PAUSE_SECONDS)),
                self._inject_faults,
            )

    # ---- storages

    def _draw_storage(self) -> SimStorage | None:
        return self._random.choice(self._partition_faults).draw_storage()

    def _kill_storage(self) -> None:
        storage = self._draw_storage()
        if storage is not None:
            storage.crash(power_loss=False)
            storage.start_later()

    def _lose_power(self) -> None:
        """Cut the power of one machine, or of all at once."""
        for storage in self._draw_one_or_all():
            if storage.up:
                storage.crash(power_loss=True)
                storage.start_later()

    def _lose_power_soon(self) -> None:
        """Cut the power of one machine, or of all, in the middle of one of the next changes."""
        for storage in self._draw_one_or_all():
            storage.lose_power_soon()

    def _draw_one_or_all(self) -> list[SimStorage]:
        count = self._random.choice((1, 1, len(self._storages)))
        return self._random.sample(list(self._storages.values()), count)

    def _lose_disk(self) -> None:
        """Empty a disk or restore its snapshot, if a quorum of intact disks remains.

        If there is no snapshot that may be restored, take one.
        """
        self._damage.count_recovered_as_intact()
        storage = self._draw_storage()
        if storage is None or not self._damage.may_damage(storage.name):
            return
        sessions = [replica.session_id for replica in storage.replicas]
        storage.crash(power_loss=self._random.random() < 0.5)
        if self._random.random() < 0.5:
            self._damage.empty(storage)
        elif self._damage.snapshot_is_older(storage):
            self._damage.restore_snapshot(storage)
        else:
            self._damage.take_snapshot(storage, sessions)
        storage.start_later()

    def _fail_flush(self) -> None:
        storage = self._draw_storage()
        if storage is not None:
            storage.fail_a_flush()

    def _fill_disk(self) -> None:
        storage = self._draw_storage()
        if storage is not None:
            storage.fill(self._random.expovariate(1 / 0.3))

    def _rot(self) -> None:
        """Flip a bit on one of a minority of the disks; the other disks stay intact."""
        self.replace_refused()
        storage = self._draw_storage()
        if storage is not None and self._damage.may_damage(storage.name):
            self._damage.rot(storage)

    def replace_refused(self, *, at_end: bool = False) -> bool:
        """Empty the disks of storages that refuse a partition, so that its peers copy to them.

        An administrator does the same. ``at_end`` says whether all faults have ended. Return
        whether no storage refuses one.
        """
        self._damage.count_recovered_as_intact()
        if at_end:
            self._damage.count_repaired_as_intact()
        none_refused = True
        for name, storage in self._storages.items():
            refused = any(replica.log is None for replica in storage.replicas)
            none_refused = none_refused and not refused
            may_empty = self._damage.may_replace if at_end else self._damage.may_damage
            if storage.up and refused and may_empty(name):
                storage.crash(power_loss=False)
                self._damage.empty(storage)
                storage.start()
        return none_refused

    def _slow_network(self) -> None:
        self._history.fault("network", "slow network")
        self._network.delay_factor = self._random.choice((3.0, 20.0))
        self._clock.after(0.1, setattr, self._network, "delay_factor", 1.0)
