"""Strikes a cluster with faults, one after the other, but never with more than it must survive."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.sim.clock import Clock
from tests.sim.metadata import SESSION_SECONDS, Metadata
from tests.sim.network import Network
from tests.sim.server_node import ServerNode
from tests.sim.storage_node import RESTART_SECONDS, StorageNode
from tests.sim.story import Story
from waltz.metadata.formats import UNRESOLVED

_PAUSE_SECONDS = 0.08
_LINK_FACTOR = 50.0
_LINK_SECONDS = 0.03


class Faults:
    """What may happen to a cluster. ``rot`` adds flipped bits, which it need not survive yet."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        cluster: tuple[Mapping[str, StorageNode], Mapping[str, ServerNode], Network, Metadata],
        story: Story,
        rot: bool,
    ) -> None:
        self._clock = clock
        self._random = random
        self._storages, self._servers, self._network, self._metadata = cluster
        self._story = story
        self._damaged: set[str] = set()
        """Those that may have forgotten what they acknowledged."""
        self._rotten: set[str] = set()
        self._snapshot_sessions: dict[str, int] = {}
        self._stopped = False
        self._owner_starts = 0
        self._choices = [
            self._kill_storage,
            self._kill_storage,
            self._lose_power,
            self._lose_power_soon,
            self._lose_disk,
            self._lose_disk,
            self._fail_flush,
            self._fill_disk,
            self._kill_server,
            self._depose,
            self._depose_and_return,
            self._network.cut_one,
            self._wall,
            self._slow_network,
            self._silent_metadata,
            self._change_replicas,
            self._change_replicas,
            self._run_ahead,
        ]
        if rot:
            self._choices.append(self._rot)

    def start(self) -> None:
        """Give the partition its first owner, and begin to strike."""
        self._give(next(iter(self._servers)))
        self._clock.after(0.05, self._strike)
        self._clock.after(SESSION_SECONDS, self._watch_owner)

    def stop(self) -> None:
        """Strike no more, and repair everything but disks."""
        self._stopped = True
        self._network.heal()
        self._metadata.failing = 0.0
        self._metadata.deaf.clear()
        for storage in self._storages.values():
            storage.heal()
        self._replace_refused()
        for server in self._servers.values():
            server.start()

    def _strike(self) -> None:
        if not self._stopped:
            self._random.choice(self._choices)()
            self._clock.after(self._random.expovariate(1 / _PAUSE_SECONDS), self._strike)

    # ---- storages

    def _some_storage(self) -> StorageNode | None:
        alive = [s for n, s in self._storages.items() if s.up and n in self._metadata.replicas]
        return self._random.choice(alive) if alive else None

    def _restart_later(self, storage: StorageNode) -> None:
        self._clock.after(self._random.expovariate(1 / RESTART_SECONDS), storage.start)

    def _kill_storage(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.crash(power=False)
            self._restart_later(storage)

    def _lose_power(self) -> None:
        """Of one machine, or of all at once."""
        victims = self._random.choice((1, 1, len(self._storages)))
        for storage in self._random.sample(list(self._storages.values()), victims):
            if storage.up:
                storage.crash(power=True)
                self._restart_later(storage)

    def _lose_power_soon(self) -> None:
        """Of one machine, or of all, each in the middle of one of its next changes."""
        victims = self._random.choice((1, 1, len(self._storages)))
        for storage in self._random.sample(list(self._storages.values()), victims):
            storage.lose_power_soon()

    def _lose_disk(self) -> None:
        """Empty or set back a disk, as long as a quorum of intact ones stays."""
        self._forgive()
        storage = self._some_storage()
        if storage is None or not self._may_damage(storage.name):
            return
        session = storage.session_id
        storage.crash(power=self._random.random() < 0.5)
        entry = self._metadata.value.replicas.get(storage.name)
        taken = self._snapshot_sessions.get(storage.name)
        if self._random.random() < 0.5:
            storage.wipe()
            self._rotten.discard(storage.name)
            self._damaged.add(storage.name)
        elif taken is not None and entry is not None and taken < entry.session_id:
            storage.restore_snapshot()
            self._damaged.add(storage.name)
        else:
            storage.take_snapshot()
            self._snapshot_sessions[storage.name] = session
        self._restart_later(storage)

    def _may_damage(self, name: str) -> bool:
        damaged = self._damaged | self._rotten | {name}
        assigned = set(self._metadata.replicas)
        for group in (set(self._metadata.value.replicas), assigned):
            # Who is no longer assigned cannot help either.
            if group and len((group & assigned) - damaged) < len(group) // 2 + 1:
                return False
        return bool(self._metadata.value.replicas)

    def _forgive(self) -> None:
        """A damaged replica that took part in a later session is as good as any."""
        value = self._metadata.value
        for name in list(self._damaged):
            state = value.replicas.get(name)
            storage = self._storages[name]
            if state is None or (
                state.closing_mark == UNRESOLVED
                and state.session_id == value.session_id
                and storage.session_id == value.session_id
            ):
                self._damaged.discard(name)

    def _fail_flush(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.fail_a_flush()

    def _fill_disk(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.fill(self._random.expovariate(1 / 0.3))

    def _rot(self) -> None:
        """Flip a bit on one of a minority of the disks; others stay free of it."""
        self._replace_refused()
        storage = self._some_storage()
        if storage is not None and self._may_damage(storage.name):
            storage.rot()
            self._rotten.add(storage.name)

    def _replace_refused(self) -> None:
        """Do what a person does with a partition that is refused: have it copied from its peers."""
        self._forgive()
        for name, storage in self._storages.items():
            if storage.up and storage.log is None and self._may_damage(name):
                storage.crash(power=False)
                storage.wipe()
                self._rotten.discard(name)
                self._damaged.add(name)
                storage.start()

    # ---- servers

    def _kill_server(self) -> None:
        server = self._servers[self._metadata.owner]
        if server.up:
            server.crash()
            self._clock.after(self._random.expovariate(1 / 0.3), server.start)

    def _depose(self) -> None:
        """The owner's session expires, but the owner lives on and does not know."""
        others = [n for n, s in self._servers.items() if s.up and n != self._metadata.owner]
        if others:
            self._story.fault(self._metadata.owner, "owner deposed")
            self._give(self._random.choice(others))

    def _depose_and_return(self) -> None:
        """The owner loses the partition and gets it back, and may never hear of the loss."""
        owner = self._metadata.owner
        if not self._servers[owner].up:
            return
        others = [n for n, s in self._servers.items() if s.up and n != owner]
        if others and self._random.random() < 0.5:
            self._story.fault(owner, "owner deposed and back")
            if self._random.random() < 0.7:
                self._metadata.deaf.add(owner)
            self._give(self._random.choice(others))
            pause = self._random.expovariate(1 / 0.1)
            self._clock.after(pause, self._give_back, owner)
        else:
            self._story.fault(owner, "owner in a new generation")
            self._give(owner)

    def _give_back(self, owner: str) -> None:
        self._metadata.deaf.discard(owner)
        if self._servers[owner].up and not self._stopped:
            self._give(owner)

    def _watch_owner(self) -> None:
        """The session of an owner that died ends, even if it has been started again since."""
        owner = self._servers[self._metadata.owner]
        if not owner.up or owner.starts != self._owner_starts:
            alive = [name for name, server in self._servers.items() if server.up]
            if alive:
                self._give(self._random.choice(alive))
        self._clock.after(SESSION_SECONDS * (0.5 + self._random.random()), self._watch_owner)

    def _give(self, name: str) -> None:
        self._owner_starts = self._servers[name].starts
        self._metadata.give(name)

    # ---- what is between them

    def _wall(self) -> None:
        a = self._random.choice(list(self._servers))
        b = self._random.choice(list(self._storages))
        self._network.wall(a, b, self._random.expovariate(1 / 0.5))

    def _slow_network(self) -> None:
        self._story.fault("network", "slow network")
        self._network.slow = self._random.choice((3.0, 20.0))
        self._clock.after(0.1, setattr, self._network, "slow", 1.0)

    def _silent_metadata(self) -> None:
        self._story.fault("metadata", "metadata without answers")
        self._metadata.failing = self._random.choice((0.3, 0.9))
        self._clock.after(
            self._random.expovariate(1 / 0.3), setattr, self._metadata, "failing", 0.0
        )

    def _change_replicas(self, leaving: str | None = None) -> None:
        """Add and remove one or several, keeping a quorum of every set that may matter."""
        self._forgive()
        now = set(self._metadata.replicas)
        last = set(self._metadata.value.replicas) or now
        spare = [name for name in self._storages if name not in now]
        added = set(self._random.sample(spare, self._random.randint(0, len(spare))))
        removed = set(self._random.sample(sorted(now), self._random.randint(0, 2)))
        if leaving is not None:
            removed = {leaving} & now
        new = (now | added) - removed
        if new == now or len(new) < 3:
            return
        for group in (now, last):
            if len((group & new) - self._damaged - self._rotten) < len(group) // 2 + 1:
                return
        for what, names in (("added", added), ("removed", removed)):
            if names:
                many = "one" if len(names) == 1 else "several"
                listed = ", ".join(sorted(names))
                self._story.fault("metadata", f"replicas {what}: {many}", f": {listed}")
        self._metadata.assign(tuple(name for name in self._storages if name in new))
        for name in sorted(added):
            if self._storages[name].up and self._random.random() < 0.5:
                self._storages[name].crash(power=False)
                self._restart_later(self._storages[name])

    def _run_ahead(self) -> None:
        """Let one replica get appends that the others do not have yet when their server ends."""
        ahead = self._some_storage()
        if ahead is None:
            return
        owner = self._metadata.owner
        self._story.fault(ahead.name, "one replica ran ahead")
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
        elif choice < 0.75 and ahead.up:
            ahead.crash(power=False)
            self._restart_later(ahead)
        if self._random.random() < 0.3:
            self._kill_server()
        else:
            self._network.cut_node(owner)
            self._depose()
