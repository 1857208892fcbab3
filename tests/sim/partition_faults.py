"""Inject the faults of one partition: of its server, its metadata, its assigned replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from tests.sim.damage import Damage
from tests.sim.faulty_network import FaultyNetwork
from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_server import SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.run_environment import RunEnvironment
from tests.sim.unreliable_store import AnswerLoss
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import OwnedPartition
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz.metadata.store import VersionConflict

_SLOW_LINK_SECONDS = 0.03
"""How long the links to some replicas are slow, so that the others get ahead."""

_RETURN_SECONDS = 0.1
"""The mean time until a partition or a replica returns to where it was."""

_SILENT_SECONDS = 0.3
"""The mean time for which ZooKeeper does not answer."""

_FORMER_SECONDS = 1.0
"""How long a server may read replicas that are no longer assigned."""


class PartitionFaults:
    """Injects faults into one partition. ``cluster`` is an administrator's access to ZooKeeper."""

    def __init__(
        self,
        environment: RunEnvironment,
        random: Random,
        network: FaultyNetwork,
        storages: Mapping[str, SimStorage],
        servers: Mapping[str, SimServer],
        partition: NodesPartition,
        damage: Damage,
        answer_loss: AnswerLoss,
        cluster: Cluster,
    ) -> None:
        self._clock = environment.clock
        self._history = environment.history
        self._failure = environment.failure
        self._random = random
        self._network = network
        self._storages = storages
        self._servers = servers
        self._partition = partition
        self._view = partition.view
        self._damage = damage
        self._answer_loss = answer_loss
        self._cluster = cluster
        self._stopped = False
        self._changing = asyncio.Lock()
        # A fault that is listed twice is twice as likely.
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
            self._separate_nodes,
        )

    def stop(self) -> None:
        """End all faults."""
        self._stopped = True
        self._answer_loss.share = 0.0

    def cut_replica(self) -> None:
        """Cut the connection between the server and a replica, as the last fault.

        The server must readmit the replica: no later fault ends the session for another reason.
        """
        owner, storage = self._owner, self.draw_storage()
        if owner is not None and storage is not None:
            self._network.cut(owner.name, storage.host)

    def draw_storage(self) -> SimStorage | None:
        """Return one of the partition's storages that are up, None if all are down."""
        alive = [self._storages[n] for n in self._view.assigned if self._storages[n].up]
        return self._random.choice(alive) if alive else None

    @property
    def _owner(self) -> SimServer | None:
        """The server that owns the partition, None if its process is down."""
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
        other = self._draw_other_server()
        if other is not None:
            self._history.fault(self._view.name, "owner replaced")
            self._give(other)

    def _replace_owner_and_return(self) -> None:
        """Take the partition from its owner and give it back; the owner may not be notified.

        Or give it to the same owner in a new generation.
        """
        owner = self._owner
        if owner is None:
            return
        other = self._draw_other_server()
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
            self._failure.spawn(self._assign_to(owner, owner.catch_up))
        else:
            owner.catch_up()

    def _draw_other_server(self) -> SimServer | None:
        """Return a running server that does not own the partition, None if there is none."""
        ids = {self._view.owner_id, 0}
        others = [server for server in self._servers.values() if server.server_id not in ids]
        return self._random.choice(others) if others else None

    def _give(self, server: SimServer) -> None:
        self._failure.spawn(self._assign_to(server))

    async def _assign_to(self, server: SimServer, then: Callable[[], None] = lambda: None) -> None:
        """Assign the partition to ``server`` in the next generation, then call ``then``."""
        partition = self._view.partition
        read = await self._cluster.partition_assignment()
        servers = read.value.servers
        if server.server_id in servers:
            [generation] = [
                owned.generation
                for all_owned in servers.values()
                for owned in all_owned
                if owned.partition == partition
            ]
            changed = {
                server_id: tuple(owned for owned in all_owned if owned.partition != partition)
                for server_id, all_owned in servers.items()
            }
            changed[server.server_id] += (OwnedPartition(partition, generation + 1),)
            assignment = replace(read.value, servers=changed)
            try:
                await self._cluster.write_partition_assignment(assignment, read.version)
            except VersionConflict:
                self._history.note(self._view.name, "another process has changed it first")
        then()

    # ---- metadata

    def _silent_metadata(self) -> None:
        self._history.fault(self._view.name, "metadata without answers")
        self._answer_loss.share = self._random.choice((0.3, 0.9))
        pause = self._random.expovariate(1 / _SILENT_SECONDS)
        self._clock.after(pause, setattr, self._answer_loss, "share", 0.0)

    def _lose_session(self) -> None:
        """Cut the owner off from ZooKeeper, or let its session expire."""
        owner = self._owner
        if owner is not None:
            pause = self._random.expovariate(1 / _SILENT_SECONDS)
            self._random.choice((owner.expire, owner.suspend))(pause)

    def _change_replicas(self, leaving: str | None = None) -> None:
        """Add and remove one or several replicas; some of the added ones are down at first."""
        now = set(self._view.assigned)
        spare = [name for name in self._storages if name not in now]
        added = set(self._random.sample(spare, self._random.randint(0, len(spare))))
        removed = set(self._random.sample(sorted(now), self._random.randint(0, 2)))
        if leaving is not None:
            removed = {leaving} & now
        if self._add_and_remove(added, removed):
            for name in sorted(added):
                if self._random.random() < 0.5:
                    self._restart(self._storages[name])

    def _add_and_remove(self, added: set[str], removed: set[str]) -> bool:
        """Change the replicas, if a quorum of each set that may vote remains; else return False."""
        self._damage.count_recovered_as_intact()
        now = set(self._view.assigned)
        new = (now | added) - removed
        if new == now or len(new) < 3 or not self._damage.keeps_quorum(self._partition, new):
            return False
        for what, names in (("added", added), ("removed", removed)):
            if names:
                many = "one" if len(names) == 1 else "several"
                listed = ", ".join(sorted(names))
                self._history.fault(self._view.name, f"replicas {what}: {many}", f": {listed}")
        former = self._view.assigned
        self._view.formerly_assigned.append(former)
        self._clock.after(_FORMER_SECONDS, self._view.formerly_assigned.remove, former)
        self._view.assigned = tuple(name for name in self._storages if name in new)
        change = ReplicaChange(self._view.partition, frozenset(now), frozenset(new))
        self._failure.spawn(self._write_change(change))
        return True

    async def _write_change(self, change: ReplicaChange) -> None:
        """Write a change of the replicas after all earlier ones: it begins with their result."""
        async with self._changing:
            await self._cluster.change_replicas([change])

    def _restart(self, storage: SimStorage) -> None:
        if storage.up:
            storage.crash(power_loss=False)
            storage.start_later()

    # ---- between servers and storages

    def _separate_nodes(self) -> None:
        a = self._random.choice(list(self._servers))
        b = self._random.choice(list(self._storages))
        self._network.separate(a, b, self._random.expovariate(1 / 0.5))

    def _run_ahead(self) -> None:
        """End a server when one replica has appends that the others do not have yet."""
        ahead, owner = self.draw_storage(), self._owner
        if ahead is None or owner is None:
            return
        self._history.fault(ahead.name, "one replica ran ahead")
        others = [name for name in self._view.assigned if name != ahead.name]
        self._network.slow_links(others, _SLOW_LINK_SECONDS)
        pause = _SLOW_LINK_SECONDS / 2
        self._clock.after(pause, self._end_owner_of_replica_ahead, owner, ahead)

    def _end_owner_of_replica_ahead(self, owner: SimServer, ahead: SimStorage) -> None:
        """End the owner's session; the replica ``ahead`` may leave or fail before."""
        if self._stopped:
            return
        choice = self._random.random()
        if choice < 0.4:
            self._change_replicas(leaving=ahead.name)
            pause = self._random.expovariate(1 / _RETURN_SECONDS)
            self._clock.after(pause, self._assign_again, ahead)
        elif choice < 0.6:
            self._restart(ahead)
        if self._random.random() < 0.3:
            self._kill_server()
        else:
            self._network.cut_node(owner.name)
            self._replace_owner()

    def _assign_again(self, removed: SimStorage) -> None:
        """Assign a removed replica again that ran ahead; the metadata name it before it is up."""
        if self._stopped or removed.name in self._view.assigned:
            return
        self._restart(removed)
        if self._add_and_remove({removed.name}, set()):
            self._history.fault(removed.name, "replica that ran ahead assigned again")

    def _fall_behind(self) -> None:
        """Empty a disk while the replicas that have the last commits are down.

        The emptied replica can then only copy from replicas that lag: its copy is not a vote, or
        the commits would be lost (emptied_disk.txt).
        """
        owner, names = self._owner, self._view.assigned
        if owner is None or not all(self._storages[name].up for name in names):
            return
        behind = self._random.sample(names, (len(names) - 1) // 2)
        self._history.fault(self._view.name, "replicas fell behind", f": {', '.join(behind)}")
        self._network.slow_links(behind, _SLOW_LINK_SECONDS)
        self._clock.after(_SLOW_LINK_SECONDS / 2, self._end_replicas_ahead, owner, behind)

    def _end_replicas_ahead(self, owner: SimServer, behind: list[str]) -> None:
        """End the owner's session and all replicas except ``behind``; empty the disk of one."""
        if self._stopped:
            return
        replicas = (self._storages[name] for name in self._view.assigned if name not in behind)
        ahead = [storage for storage in replicas if storage.up]
        if not ahead:
            return
        self._network.cut_node(owner.name)
        for storage in ahead:
            self._restart(storage)
        emptied = self._random.choice(ahead)
        self._damage.count_recovered_as_intact()
        if self._damage.may_damage(emptied.name):
            self._damage.empty(emptied)
            emptied.start()
