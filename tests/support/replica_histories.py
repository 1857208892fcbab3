"""Simulate sequences of store sessions over disks, each of which may end at any point.

A history has a few disks, and one store session after another over some of them. A session may end
at any point: between its steps, before it opens, or after it has appended something. The simulated
storages check marks as real ones do, so a test also detects a mark that a storage would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from waltz.metadata.core.formats import PartitionMetadata, ReplicaState
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, Truncate
from waltz_server.core.replication.session_recovery import SessionRecovery
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.partitions.fencing import begin_session

_FRESH = PartitionInfo()

_DIES = 0.04
"""The probability that a session ends before its next step."""
_CONNECTS = 0.3
"""The probability that a further replica connects before the next step."""


@dataclass
class Disk:
    """What a replica keeps when its process ends."""

    info: PartitionInfo = _FRESH
    log: list[int] = field(default_factory=list)
    """Each transaction's session, which distinguishes it from others of the same id."""

    @property
    def end(self) -> int:
        return len(self.log) - 1


@dataclass
class World:
    """The disks, their metadata in ZooKeeper, and the transactions that must never change."""

    random: Random
    size: int
    """The number of disks."""
    disks: dict[str, Disk] = field(init=False)
    assigned: tuple[str, ...] = field(init=False)
    states: dict[str, ReplicaState] = field(default_factory=dict)
    session_id: int = 0
    fixed: list[int] = field(default_factory=list)
    """The log, as far as any mark on a disk has ever covered it, or it was committed."""
    opened: bool = False
    """Whether the last session opened."""

    def __post_init__(self) -> None:
        self.disks = {f"r{i}": Disk() for i in range(self.size)}
        self.assigned = tuple(self.disks)

    def session(self, *, all_steps: bool, complete: bool = False) -> None:
        """Begin a session, perform steps of it, and open it if its recovery completes.

        With ``complete``, all assigned replicas connect; otherwise a random number of them.
        """
        self.session_id += 1
        self.opened = False
        recovery = SessionRecovery(self.session_id, 1, self.assigned, self.states, copy_records=2)
        count = len(self.assigned) if complete else self.random.randint(1, len(self.assigned))
        connecting = self.random.sample(self.assigned, count)
        due: list[tuple[str, Step]] = []
        while (connecting or due) and (all_steps or self.random.random() > _DIES):
            if connecting and (not due or self.random.random() < _CONNECTS):
                name = connecting.pop()
                info = self.disks[name].info
                recovery.introduced(
                    name, info.session_id, info.low_water_mark, info.local_low_water_mark
                )
            else:
                self._perform(recovery, *due.pop(self.random.randrange(len(due))))
            due += recovery.take_steps()
        if len(recovery.recovered()) >= recovery.quorum:
            self._open(recovery.metadata(), sorted(recovery.recovered()), recovery.quorum)

    def _perform(self, recovery: SessionRecovery, name: str, step: Step) -> None:
        disk = self.disks[name]
        match step:
            case Measure():
                recovery.measured(name, disk.end)
            case Truncate(to):
                del disk.log[to + 1 :]
                recovery.cut(name, disk.end)
            case Copy(source, first, count):
                assert first == disk.end + 1
                disk.log += self.disks[source].log[first : first + count]
                recovery.copied(name, disk.end)
            case Mark(mark):
                disk.info = begin_session(disk.info, self.session_id, mark, disk.end)
                recovery.marked(name)
        self._check_marks()

    def _check_marks(self) -> None:
        """Transactions up to a mark are the same on all disks, now and in all later sessions."""
        for name, disk in self.disks.items():
            covered = disk.log[: disk.info.low_water_mark + 1]
            both = min(len(covered), len(self.fixed))
            assert covered[:both] == self.fixed[:both], f"{name} has a mark that is not true"
            self.fixed += covered[both:]

    def _open(self, written: PartitionMetadata, replicas: list[str], quorum: int) -> None:
        """Open a session that sends appends to its replicas and then ends as after a kill -9."""
        self.states, self.opened = dict(written.replicas), True
        for name in replicas:
            assert self.disks[name].log[: len(self.fixed)] == self.fixed
            self.disks[name].log += [self.session_id] * self.random.choice((0, 1, 2, 5))
        ends = sorted((self.disks[name].end for name in replicas), reverse=True)
        committed = ends[quorum - 1]
        if committed >= len(self.fixed):
            log = next(d.log for n in replicas if (d := self.disks[n]).end >= committed)
            self.fixed = log[: committed + 1]
