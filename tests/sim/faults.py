"""Inject faults into a cluster one after the other, never more than it must tolerate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.sim.clock import Clock
from tests.sim.damage import Damage
from tests.sim.history import History
from tests.sim.network import Network
from tests.sim.partition_faults import PartitionFaults
from tests.sim.partition_run import PartitionRun
from tests.sim.storage_node import StorageNode

_PAUSE_SECONDS = 0.08


class Faults:
    """Faults of a cluster. ``rot`` adds flipped bits, which it need not tolerate yet."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        network: Network,
        storages: Mapping[str, StorageNode],
        partitions: Sequence[PartitionRun],
        history: History,
        *,
        rot: bool,
    ) -> None:
        self._clock = clock
        self._random = random
        self._network = network
        self._storages = storages
        self._history = history
        self._damage = Damage(storages, partitions)
        self._stopped = False
        self._partitions = [
            PartitionFaults(
                clock,
                Random(random.getrandbits(64)),
                network,
                storages,
                partition,
                self._damage,
                history,
            )
            for partition in partitions
        ]
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
        """Give each partition its first owner, and begin with faults."""
        for partition in self._partitions:
            partition.start()
        self._clock.after(0.05, self._inject_faults)

    def stop(self) -> None:
        """End all faults, and repair everything except disks."""
        self._stopped = True
        self._network.heal()
        for storage in self._storages.values():
            storage.heal()
        self._replace_refused()
        for partition in self._partitions:
            partition.stop()

    def _inject_faults(self) -> None:
        if not self._stopped:
            partition = self._random.choice(self._partitions)
            self._random.choice([*self._choices, *partition.choices])()
            self._clock.after(self._random.expovariate(1 / _PAUSE_SECONDS), self._inject_faults)

    # ---- storages

    def _some_storage(self) -> StorageNode | None:
        return self._random.choice(self._partitions).some_storage()

    def _kill_storage(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.crash(power=False)
            storage.start_later()

    def _lose_power(self) -> None:
        """Cut the power of one machine, or of all at once."""
        for storage in self._one_or_all():
            if storage.up:
                storage.crash(power=True)
                storage.start_later()

    def _lose_power_soon(self) -> None:
        """Cut the power of one machine, or of all, in the middle of one of the next changes."""
        for storage in self._one_or_all():
            storage.lose_power_soon()

    def _one_or_all(self) -> list[StorageNode]:
        victims = self._random.choice((1, 1, len(self._storages)))
        return self._random.sample(list(self._storages.values()), victims)

    def _lose_disk(self) -> None:
        """Empty a disk or restore its snapshot, while a quorum of intact disks remains."""
        self._damage.count_intact()
        storage = self._some_storage()
        if storage is None or not self._damage.may(storage.name):
            return
        sessions = [replica.session_id for replica in storage.replicas]
        storage.crash(power=self._random.random() < 0.5)
        if self._random.random() < 0.5:
            self._damage.empty(storage)
        elif self._damage.is_older(storage):
            self._damage.set_back(storage)
        else:
            self._damage.remember(storage, sessions)
        storage.start_later()

    def _fail_flush(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.fail_a_flush()

    def _fill_disk(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.fill(self._random.expovariate(1 / 0.3))

    def _rot(self) -> None:
        """Flip a bit on one of a minority of the disks; the other disks stay intact."""
        self._replace_refused()
        storage = self._some_storage()
        if storage is not None and self._damage.may(storage.name):
            self._damage.rot(storage)

    def _replace_refused(self) -> None:
        """Replace a refused partition as an administrator does, by a copy from its peers."""
        self._damage.count_intact()
        for name, storage in self._storages.items():
            refused = any(replica.log is None for replica in storage.replicas)
            if storage.up and refused and self._damage.may(name):
                storage.crash(power=False)
                self._damage.empty(storage)
                storage.start()

    def _slow_network(self) -> None:
        self._history.fault("network", "slow network")
        self._network.slow = self._random.choice((3.0, 20.0))
        self._clock.after(0.1, setattr, self._network, "slow", 1.0)
