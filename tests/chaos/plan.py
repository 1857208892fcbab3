"""Choose the faults of a run, and never more than the promise allows. Pure.

The promise (docs/promises.md): one fault of a disk together with one absent replica loses nothing.
So at most one storage is absent, at most one other has a disk fault, and replicas change only
while no disk has a fault. Servers and ZooKeeper hold no records: they may fail at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Group(StrEnum):
    """Faults of one group exclude each other."""

    ABSENCE = "storage absent"
    DISK = "disk"
    SERVER = "server"
    ZOOKEEPER = "zookeeper"
    REPLICAS = "replicas"


class Kind(StrEnum):
    KILL_STORAGE = "storage killed"
    PAUSE_STORAGE = "storage paused"
    CUT_STORAGE = "storage: links black-holed"
    CUT_REQUESTS = "storage: requests lost, answers pass"
    CUT_ANSWERS = "storage: answers lost, requests pass"
    SLOW_STORAGE = "storage: links slow"
    FULL_DISK = "disk full"
    STALLED_DISK = "disk stalled"
    FLIP_BITS = "bits flipped"
    REMOVE_PARTITION = "partition directory removed"
    OLD_DATA = "data volume restored from an older copy"
    OLD_META = "meta volume restored from an older copy"
    OLD_WAL = "volume of the write-ahead log restored from an older copy"
    LOST_WAL = "volume of the write-ahead log emptied"
    EMPTY_DISK = "disk emptied"
    KILL_SERVER = "server killed"
    PAUSE_SERVER = "server paused"
    CUT_CLIENTS = "server: clients black-holed"
    CUT_CLIENT_ANSWERS = "server: answers to clients lost"
    SLOW_CLIENTS = "server: clients slow"
    CUT_ZOOKEEPER = "server cut off from ZooKeeper"
    KILL_ZOOKEEPER = "ZooKeeper killed"
    PAUSE_ZOOKEEPER = "ZooKeeper paused"
    MOVE_REPLICA = "replica moved"
    ADD_REPLICA = "replica added and removed again"


_GROUPS: dict[Group, tuple[Kind, ...]] = {
    Group.ABSENCE: (
        Kind.KILL_STORAGE,
        Kind.PAUSE_STORAGE,
        Kind.CUT_STORAGE,
        Kind.CUT_REQUESTS,
        Kind.CUT_ANSWERS,
        Kind.SLOW_STORAGE,
        Kind.FULL_DISK,
        Kind.STALLED_DISK,
    ),
    Group.DISK: (
        Kind.FLIP_BITS,
        Kind.REMOVE_PARTITION,
        Kind.OLD_DATA,
        Kind.OLD_META,
        Kind.OLD_WAL,
        Kind.LOST_WAL,
        Kind.EMPTY_DISK,
    ),
    Group.SERVER: (
        Kind.KILL_SERVER,
        Kind.PAUSE_SERVER,
        Kind.CUT_CLIENTS,
        Kind.CUT_CLIENT_ANSWERS,
        Kind.SLOW_CLIENTS,
        Kind.CUT_ZOOKEEPER,
    ),
    Group.ZOOKEEPER: (Kind.KILL_ZOOKEEPER, Kind.PAUSE_ZOOKEEPER),
    Group.REPLICAS: (Kind.MOVE_REPLICA, Kind.ADD_REPLICA),
}

_NEEDS_MOUNT = (Kind.FULL_DISK, Kind.STALLED_DISK)
_NEEDS_WAL = (Kind.OLD_WAL, Kind.LOST_WAL)
_SHORTEST_SECONDS = 1.0
_LONGEST_SECONDS = 10.0
_PAUSES = {
    Group.ABSENCE: (0.5, 5.0),
    Group.DISK: (1.0, 6.0),
    Group.SERVER: (1.0, 8.0),
    Group.ZOOKEEPER: (8.0, 30.0),
    Group.REPLICAS: (2.0, 10.0),
}
"""The shortest and the longest time between two faults of one group, in seconds."""


@dataclass(frozen=True, slots=True)
class Places:
    """What faults may hit.

    ``mounted`` are the storages whose disks may be filled and stalled, ``logged`` those whose
    write-ahead log has a volume of its own.
    """

    storages: tuple[str, ...]
    servers: tuple[str, ...]
    mounted: tuple[str, ...]
    logged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to inject now, for ``seconds``; a disk fault lasts until its disk is rebuilt."""

    group: Group
    kind: Kind
    target: str
    seconds: float


def kinds_of(group: Group) -> tuple[Kind, ...]:
    return _GROUPS[group]


def pause_before(random: Random, group: Group) -> float:
    """Return how long a group rests before its next fault."""
    return random.uniform(*_PAUSES[group])


def choose(
    random: Random, group: Group, active: Iterable[Planned], places: Places
) -> Planned | None:
    """Return the next fault of a group, None if the promise allows none now."""
    running = list(active)
    groups = {fault.group for fault in running}
    if group in groups:
        return None
    if group is Group.DISK and Group.REPLICAS in groups:
        return None
    if group is Group.REPLICAS and Group.DISK in groups:
        return None
    kind = random.choice(_GROUPS[group])
    targets = _targets(kind, running, places)
    if not targets:
        return None
    seconds = random.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS)
    return Planned(group, kind, random.choice(targets), seconds)


def _targets(kind: Kind, running: Sequence[Planned], places: Places) -> tuple[str, ...]:
    """Return what ``kind`` may hit: no storage has two faults at a time."""
    hit = {fault.target for fault in running}
    if kind in _NEEDS_MOUNT:
        return tuple(name for name in places.mounted if name not in hit)
    if kind in _NEEDS_WAL:
        return tuple(name for name in places.logged if name not in hit)
    if kind in (*_GROUPS[Group.ABSENCE], *_GROUPS[Group.DISK]):
        return tuple(name for name in places.storages if name not in hit)
    if kind in _GROUPS[Group.SERVER]:
        return places.servers
    return ("zookeeper",) if kind in _GROUPS[Group.ZOOKEEPER] else ("replicas",)
