"""Inject faults one after the other, never more than a cluster must tolerate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.sim.alarm import Alarm
from tests.sim.damage import Damage
from tests.sim.faulty_network import FaultyNetwork
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_server import SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.server_faults import ServerFaults
from tests.sim.unreliable_store import Trouble
from waltz.metadata.cluster import Cluster

_FIRST_SECONDS = 0.5
_PAUSE_SECONDS = (0.01, 0.03, 0.15)


class Faults:
    """Faults of a cluster. ``rot`` adds flipped bits, which it need not tolerate yet."""

    def __init__(
        self,
        environment: tuple[LoopClock, Random, History, Alarm],
        network: FaultyNetwork,
        storages: Mapping[str, SimStorage],
        servers: Mapping[str, SimServer],
        partitions: Sequence[NodesPartition],
        trouble: Trouble,
        cluster: Cluster,
        *,
        rot: bool,
    ) -> None:
        self._clock, self._random, self._history, alarm = environment
        self._network = network
        self._storages = storages
        self._servers = servers
        self._damage = Damage(storages, partitions)
        self._stopped = False
        self._partitions = [
            ServerFaults(
                (self._clock, Random(self._random.getrandbits(64)), self._history, alarm),
                network,
                storages,
                servers,
                partition,
                self._damage,
                trouble,
                cluster,
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
        """Begin with faults."""
        self._clock.after(_FIRST_SECONDS, self._inject_faults)

    def stop(self) -> None:
        """End all faults, and repair everything except disks."""
        self._stopped = True
        for partition in self._partitions:
            partition.cut_replica()
        self._network.heal()
        for storage in self._storages.values():
            storage.heal()
        self._replace_refused()
        for partition in self._partitions:
            partition.stop()
        for server in self._servers.values():
            server.catch_up()
            server.start()

    def _inject_faults(self) -> None:
        if not self._stopped:
            partition = self._random.choice(self._partitions)
            self._random.choice([*self._choices, *partition.choices])()
            self._clock.after(
                self._random.expovariate(1 / self._random.choice(_PAUSE_SECONDS)),
                self._inject_faults,
            )

    # ---- storages

    def _some_storage(self) -> SimStorage | None:
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

    def _one_or_all(self) -> list[SimStorage]:
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
