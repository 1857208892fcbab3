"""The faults of one disk, and what a storage of this version does with each at its start. Pure.

A storage refuses a partition whose log its control volume contradicts: the *flushed mark* names
the last record of the log (`waltz_storage.core.log.flushed_end`). A refused partition is an absent
replica until its storage is emptied.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from tests.model.bugs import Bug
from tests.model.values import Disk

if TYPE_CHECKING:
    from tests.model.world import World


class Fault(Enum):
    """A fault, which happens at most once in a run, to one replica."""

    LOG_LOST = "the directory of the log is lost, the control file is kept"
    DISK_LOST = "the whole disk is lost and replaced by an empty one"
    OLD_LOG = "the volume of the log is restored from an older copy"
    OLD_CONTROL = "the volume of the control file is restored from an older copy"
    OLD_DISK = "the whole disk is restored from a copy of an earlier session"
    DAMAGED_RECORD = "the last record is damaged"
    METADATA_LOST = "the metadata in ZooKeeper are lost"


_RESTORES = (Fault.OLD_LOG, Fault.OLD_CONTROL, Fault.OLD_DISK)

After = tuple[str, int, "World"]


def after_fault(world: World, fault: Fault, bugs: frozenset[Bug]) -> Iterator[After]:
    """Return what the fault may do now: a text, the replica or -1, and the world after it."""
    if world.faulty:
        for number, disk in enumerate(world.disks):
            if disk.refused:
                yield "the refused disk is emptied", number, _with_disk(world, number, Disk())
        return
    if fault is Fault.METADATA_LOST:
        nothing = (None,) * len(world.entries)
        if world.entries != nothing:
            yield fault.value, -1, world._replace(entries=nothing, faulty=True)
        return
    if fault in _RESTORES and not any(world.copies):
        for number, disk in enumerate(world.disks):
            if disk != Disk():
                copies = tuple(disk if n == number else None for n in range(len(world.disks)))
                yield "a copy of the disk is made", -1, world._replace(copies=copies)
        return
    for number, disk in enumerate(world.disks):
        found = _disk_after(world, number, fault, bugs)
        if found is not None and found != disk:
            after = _with_disk(world, number, found)
            copies = (None,) * len(world.disks)
            yield fault.value, number, after._replace(faulty=True, copies=copies)


def _disk_after(world: World, number: int, fault: Fault, bugs: frozenset[Bug]) -> Disk | None:
    """Return the disk as the next process finds it, None if the fault cannot happen to it."""
    disk, copy, entry = world.disks[number], world.copies[number], world.entries[number]
    if disk == Disk():
        return None
    match fault:
        case Fault.LOG_LOST:
            return disk._replace(log=(), refused=Bug.COUNTS_LOST_LOG not in bugs)
        case Fault.DISK_LOST:
            return Disk()
        case Fault.DAMAGED_RECORD:
            # The storage notices it when it reads the record, or at its next start.
            return disk._replace(unreadable=True) if disk.log else None
        case Fault.OLD_DISK:
            # A copy of the last session that opened is excluded: it looks like a replica that lags
            # (docs/promises.md, "Snapshot of the same store session").
            older = copy is not None and entry is not None and copy.session < entry.session
            return copy if older else None
        case _:
            return _restored(disk, copy, fault, bugs) if copy is not None else None


def _restored(disk: Disk, copy: Disk, fault: Fault, bugs: frozenset[Bug]) -> Disk:
    if fault is Fault.OLD_CONTROL:
        return copy._replace(log=disk.log, refused=disk.log[: len(copy.log)] != copy.log)
    # The flushed mark names the last record of the present log.
    intact = copy.log[: len(disk.log)] == disk.log
    # Each truncation raises the generation of both volumes: an older copy has a lower one.
    if len(copy.log) > len(disk.log) and Bug.OPENS_OLDER_TAIL not in bugs:
        intact = False
    return disk._replace(log=copy.log, refused=not intact)


def _with_disk(world: World, number: int, disk: Disk) -> World:
    disks = tuple(disk if n == number else other for n, other in enumerate(world.disks))
    return world._replace(disks=disks)
