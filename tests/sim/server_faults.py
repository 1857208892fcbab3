"""Inject faults of one partition: of its server, its metadata, its assigned replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random

from tests.sim.alarm import Alarm
from tests.sim.damage import Damage
from tests.sim.faulty_network import FaultyNetwork
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_server import SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.unreliable_store import Trouble
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import OwnedPartition
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz.metadata.store import VersionConflict

_LINK_SECONDS = 0.03
_RETURN_SECONDS = 0.1
_SILENT_SECONDS = 0.3
_FORMER_SECONDS = 1.0
"""How long a server may read replicas that are no longer assigned."""


class ServerFaults:
    """Injects faults into one partition. ``cluster`` is an administrator's access to ZooKeeper."""

    def __init__(
        self,
        environment: tuple[LoopClock, Random, History, Alarm],
        network: FaultyNetwork,
        storages: Mapping[str, SimStorage],
        servers: Mapping[str, SimServer],
        partition: NodesPartition,
        damage: Damage,
        trouble: Trouble,
        cluster: Cluster,
    ) -> None:
        self._clock, self._random, self._history, self._alarm = environment
        self._network = network
        self._storages = storages
        self._servers = servers
        self._partition = partition
        self._view = partition.metadata
        self._damage = damage
        self._trouble = trouble
        self._cluster = cluster
        self._stopped = False
        self._changing = asyncio.Lock()
        self.choices: tuple[Callable[[], None], ...] = (
            self._kill_server,
            self._replace_owner,
            self._replace_owner_and_return,
            self._silent_metadata,
            self._lose_session,
            self._change_replicas,
            self._change_replicas,
            self._run_ahead,
            self._fall_behind,
            self._wall,
        )

    def stop(self) -> None:
        """End all faults."""
        self._stopped = True
        self._trouble.failing = 0.0

    def cut_replica(self) -> None:
        """Cut the connection between the server and a replica, as the last fault.

        The server must readmit the replica: no later fault ends the session for another reason.
        """
        owner, storage = self._owner, self.some_storage()
        if owner is not None and storage is not None:
            self._network.cut(owner.name, storage.host)

    def some_storage(self) -> SimStorage | None:
        """Return one of the partition's storages that are up, if there is one."""
        alive = [self._storages[n] for n in self._view.replicas if self._storages[n].up]
        return self._random.choice(alive) if alive else None

    @property
    def _owner(self) -> SimServer | None:
        owner = self._partition.owner
        return owner if owner is not None and owner.up else None

    # ---- servers

    def _kill_server(self) -> None:
        server = self._owner
        if server is not None:
            server.crash()
            self._clock.after(self._random.expovariate(1 / 0.3), server.start)

    def _replace_owner(self) -> None:
        """Replace the owner; its process continues and is notified late."""
        other = self._other_server()
        if other is not None:
            self._history.fault(self._view.name, "owner replaced")
            self._give(other)

    def _replace_owner_and_return(self) -> None:
        """Take the partition from its owner and give it back; the owner may not be notified."""
        owner = self._owner
        if owner is None:
            return
        other = self._other_server()
        if other is not None and self._random.random() < 0.5:
            self._history.fault(owner.name, "owner replaced and back")
            if self._random.random() < 0.7:
                owner.lag()
            self._give(other)
            pause = self._random.expovariate(1 / _RETURN_SECONDS)
            self._clock.after(pause, self._give_back, owner)
        else:
            self._history.fault(owner.name, "owner in a new generation")
            self._give(owner)

    def _give_back(self, owner: SimServer) -> None:
        if owner.up and not self._stopped:
            self._alarm.spawn(self._move(owner, owner.catch_up))
        else:
            owner.catch_up()

    def _other_server(self) -> SimServer | None:
        ids = {self._view.owner_id, 0}
        others = [server for server in self._servers.values() if server.server_id not in ids]
        return self._random.choice(others) if others else None

    def _give(self, server: SimServer) -> None:
        self._alarm.spawn(self._move(server))

    async def _move(self, server: SimServer, then: Callable[[], None] = lambda: None) -> None:
        """Assign the partition to ``server`` in the next generation, then call ``then``."""
        partition = self._view.partition
        read = await self._cluster.partition_assignment()
        if server.server_id in read.value.servers:
            owned = {
                each: tuple(p for p in held if p.partition != partition)
                for each, held in read.value.servers.items()
            }
            everything = [p for held in read.value.servers.values() for p in held]
            [generation] = [p.generation for p in everything if p.partition == partition]
            owned[server.server_id] += (OwnedPartition(partition, generation + 1),)
            new = replace(read.value, servers=owned)
            await self._unless_changed(self._cluster.write_partition_assignment(new, read.version))
        then()

    async def _unless_changed(self, work: Awaitable[object]) -> None:
        try:
            await work
        except VersionConflict:
            self._history.note(self._view.name, "another process has changed it first")

    # ---- metadata

    def _silent_metadata(self) -> None:
        self._history.fault(self._view.name, "metadata without answers")
        self._trouble.failing = self._random.choice((0.3, 0.9))
        pause = self._random.expovariate(1 / _SILENT_SECONDS)
        self._clock.after(pause, setattr, self._trouble, "failing", 0.0)

    def _lose_session(self) -> None:
        """Cut the owner off from ZooKeeper; its session may expire meanwhile."""
        owner = self._owner
        if owner is not None:
            pause = self._random.expovariate(1 / _SILENT_SECONDS)
            self._random.choice((owner.expire, owner.suspend))(pause)

    def _change_replicas(self, leaving: str | None = None) -> None:
        """Add and remove one or several replicas; some of the added ones are down at first."""
        now = set(self._view.replicas)
        spare = [name for name in self._storages if name not in now]
        added = set(self._random.sample(spare, self._random.randint(0, len(spare))))
        removed = set(self._random.sample(sorted(now), self._random.randint(0, 2)))
        if leaving is not None:
            removed = {leaving} & now
        if self._assign(added, removed):
            for name in sorted(added):
                if self._random.random() < 0.5:
                    self._restart(self._storages[name])

    def _assign(self, added: set[str], removed: set[str]) -> bool:
        """Change the replicas, if a quorum of each set that may vote remains."""
        self._damage.count_intact()
        now = set(self._view.replicas)
        new = (now | added) - removed
        if new == now or len(new) < 3 or not self._damage.intact(self._partition, new):
            return False
        for what, names in (("added", added), ("removed", removed)):
            if names:
                many = "one" if len(names) == 1 else "several"
                listed = ", ".join(sorted(names))
                self._history.fault(self._view.name, f"replicas {what}: {many}", f": {listed}")
        former = self._view.replicas
        self._view.former_replicas.append(former)
        self._clock.after(_FORMER_SECONDS, self._view.former_replicas.remove, former)
        self._view.replicas = tuple(name for name in self._storages if name in new)
        change = ReplicaChange(self._view.partition, frozenset(now), frozenset(new))
        self._alarm.spawn(self._change(change))
        return True

    async def _change(self, change: ReplicaChange) -> None:
        """Write a change; the next one, which begins with its result, must wait for it."""
        async with self._changing:
            await self._cluster.change_replicas([change])

    def _restart(self, storage: SimStorage) -> None:
        if storage.up:
            storage.crash(power=False)
            storage.start_later()

    # ---- between servers and storages

    def _wall(self) -> None:
        a = self._random.choice(list(self._servers))
        b = self._random.choice(list(self._storages))
        self._network.wall(a, b, self._random.expovariate(1 / 0.5))

    def _run_ahead(self) -> None:
        """End a server when one replica has appends that the others do not have yet."""
        ahead, owner = self.some_storage(), self._owner
        if ahead is None or owner is None:
            return
        self._history.fault(ahead.name, "one replica ran ahead")
        others = [name for name in self._view.replicas if name != ahead.name]
        self._network.slow_links(others, _LINK_SECONDS)
        self._clock.after(_LINK_SECONDS / 2, self._end_ahead, owner, ahead)

    def _end_ahead(self, owner: SimServer, ahead: SimStorage) -> None:
        if self._stopped:
            return
        choice = self._random.random()
        if choice < 0.4:
            self._change_replicas(leaving=ahead.name)
            pause = self._random.expovariate(1 / _RETURN_SECONDS)
            self._clock.after(pause, self._return_late, ahead)
        elif choice < 0.6:
            self._restart(ahead)
        if self._random.random() < 0.3:
            self._kill_server()
        else:
            self._network.cut_node(owner.name)
            self._replace_owner()

    def _return_late(self, left: SimStorage) -> None:
        """Assign a removed replica again that ran ahead; the metadata names it before it is up."""
        if self._stopped or left.name in self._view.replicas:
            return
        self._restart(left)
        if self._assign({left.name}, set()):
            self._history.fault(left.name, "replica that ran ahead assigned again")

    def _fall_behind(self) -> None:
        """Empty a disk while the replicas that have the last commits are down.

        The emptied replica can then only copy from replicas that lag: its copy is not a vote, or
        the commits would be lost (emptied_disk.txt).
        """
        owner, names = self._owner, self._view.replicas
        if owner is None or not all(self._storages[name].up for name in names):
            return
        behind = self._random.sample(names, (len(names) - 1) // 2)
        self._history.fault(self._view.name, "replicas fell behind", f": {', '.join(behind)}")
        self._network.slow_links(behind, _LINK_SECONDS)
        self._clock.after(_LINK_SECONDS / 2, self._end_behind, owner, behind)

    def _end_behind(self, owner: SimServer, behind: list[str]) -> None:
        if self._stopped:
            return
        replicas = (self._storages[name] for name in self._view.replicas if name not in behind)
        ahead = [storage for storage in replicas if storage.up]
        if not ahead:
            return
        self._network.cut_node(owner.name)
        for storage in ahead:
            self._restart(storage)
        emptied = self._random.choice(ahead)
        self._damage.count_intact()
        if self._damage.may(emptied.name):
            self._damage.empty(emptied)
            emptied.start()
