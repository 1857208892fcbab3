"""Inject faults of one partition: of its servers, its metadata, its assigned replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.sim.clock import Clock
from tests.sim.damage import Damage
from tests.sim.history import History
from tests.sim.metadata import SESSION_SECONDS
from tests.sim.network import Network
from tests.sim.partition_run import PartitionRun
from tests.sim.storage_node import StorageNode

_LINK_FACTOR = 50.0
_LINK_SECONDS = 0.03
_RETURN_SECONDS = 0.1


class PartitionFaults:
    """Injects faults into one partition."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        network: Network,
        storages: Mapping[str, StorageNode],
        run: PartitionRun,
        damage: Damage,
        history: History,
    ) -> None:
        self._clock = clock
        self._random = random
        self._network = network
        self._storages = storages
        self._metadata = run.metadata
        self._servers = run.servers
        self._run = run
        self._damage = damage
        self._history = history
        self._stopped = False
        self._owner_starts = 0
        self.choices: tuple[Callable[[], None], ...] = (
            self._kill_server,
            self._replace_owner,
            self._replace_owner_and_return,
            self._silent_metadata,
            self._change_replicas,
            self._change_replicas,
            self._run_ahead,
            self._wall,
        )

    def start(self) -> None:
        """Give the partition its first owner, and replace owners that end from now on."""
        self._give(next(iter(self._servers)))
        self._clock.after(SESSION_SECONDS, self._watch_owner)

    def stop(self) -> None:
        """End all faults, and repair everything."""
        self._stopped = True
        self._metadata.failing = 0.0
        self._metadata.without_news.clear()
        for server in self._servers.values():
            server.start()

    def some_storage(self) -> StorageNode | None:
        """Return one of the partition's storages that are up, if there is one."""
        alive = [self._storages[n] for n in self._metadata.replicas if self._storages[n].up]
        return self._random.choice(alive) if alive else None

    # ---- servers

    def _kill_server(self) -> None:
        server = self._servers[self._metadata.owner]
        if server.up:
            server.crash()
            self._clock.after(self._random.expovariate(1 / 0.3), server.start)

    def _replace_owner(self) -> None:
        """Replace the owner; its process continues and is notified late."""
        others = [n for n, s in self._servers.items() if s.up and n != self._metadata.owner]
        if others:
            self._history.fault(self._metadata.owner, "owner replaced")
            self._give(self._random.choice(others))

    def _replace_owner_and_return(self) -> None:
        """Take the partition from its owner and give it back; the owner may not be notified."""
        owner = self._metadata.owner
        if not self._servers[owner].up:
            return
        others = [n for n, s in self._servers.items() if s.up and n != owner]
        if others and self._random.random() < 0.5:
            self._history.fault(owner, "owner replaced and back")
            if self._random.random() < 0.7:
                self._metadata.without_news.add(owner)
            self._give(self._random.choice(others))
            pause = self._random.expovariate(1 / _RETURN_SECONDS)
            self._clock.after(pause, self._give_back, owner)
        else:
            self._history.fault(owner, "owner in a new generation")
            self._give(owner)

    def _give_back(self, owner: str) -> None:
        self._metadata.without_news.discard(owner)
        if self._servers[owner].up and not self._stopped:
            self._give(owner)

    def _watch_owner(self) -> None:
        """Replace an owner whose process ended, even if it has been started again since."""
        owner = self._servers[self._metadata.owner]
        if not owner.up or owner.starts != self._owner_starts:
            alive = [name for name, server in self._servers.items() if server.up]
            if alive:
                self._give(self._random.choice(alive))
        self._clock.after(SESSION_SECONDS * (0.5 + self._random.random()), self._watch_owner)

    def _give(self, name: str) -> None:
        self._owner_starts = self._servers[name].starts
        self._metadata.give(name)

    # ---- metadata

    def _silent_metadata(self) -> None:
        self._history.fault(self._metadata.name, "metadata without answers")
        self._metadata.failing = self._random.choice((0.3, 0.9))
        pause = self._random.expovariate(1 / 0.3)
        self._clock.after(pause, setattr, self._metadata, "failing", 0.0)

    def _change_replicas(self, leaving: str | None = None) -> None:
        """Add and remove one or several replicas; some of the added ones are down at first."""
        now = set(self._metadata.replicas)
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
        now = set(self._metadata.replicas)
        new = (now | added) - removed
        if new == now or len(new) < 3 or not self._damage.intact(self._run, new):
            return False
        for what, names in (("added", added), ("removed", removed)):
            if names:
                many = "one" if len(names) == 1 else "several"
                listed = ", ".join(sorted(names))
                self._history.fault(self._metadata.name, f"replicas {what}: {many}", f": {listed}")
        self._metadata.assign(tuple(name for name in self._storages if name in new))
        return True

    def _restart(self, storage: StorageNode) -> None:
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
        ahead = self.some_storage()
        if ahead is None:
            return
        owner = self._metadata.owner
        self._history.fault(ahead.name, "one replica ran ahead")
        for name in self._metadata.replicas:
            if name != ahead.name:
                self._network.slow_link(owner, name, _LINK_FACTOR, _LINK_SECONDS)
        self._clock.after(_LINK_SECONDS / 2, self._end_ahead, owner, ahead)

    def _end_ahead(self, owner: str, ahead: StorageNode) -> None:
        if self._stopped:
            return
        choice = self._random.random()
        if choice < 0.5:
            self._change_replicas(leaving=ahead.name)
            pause = self._random.expovariate(1 / _RETURN_SECONDS)
            self._clock.after(pause, self._return_late, ahead)
        elif choice < 0.75:
            self._restart(ahead)
        if self._random.random() < 0.3:
            self._kill_server()
        else:
            self._network.cut_node(owner)
            self._replace_owner()

    def _return_late(self, left: StorageNode) -> None:
        """Assign a removed replica again that ran ahead; the metadata names it before it is up."""
        if self._stopped or left.name in self._metadata.replicas:
            return
        self._restart(left)
        if self._assign({left.name}, set()):
            self._history.fault(left.name, "replica that ran ahead assigned again")
