"""The configurations that are searched: the rule as it is, and with each bug switched on. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.bugs import Bug
from tests.model.faults import Fault
from tests.model.world import Bounds


@dataclass(frozen=True, slots=True)
class Configuration:
    name: str
    bounds: Bounds


def quick() -> list[Configuration]:
    """Return small configurations: all of them are explored in seconds."""
    return [
        Configuration("crashes and restarts", Bounds(records=1)),
        *(
            Configuration(
                f"one fault: {fault.value}", Bounds(sessions=2, records=1, restarts=0, fault=fault)
            )
            for fault in Fault
        ),
    ]


def full(records: int) -> list[Configuration]:
    """Return the large configurations, the longest first."""
    return [
        *(
            Configuration(
                f"one fault: {fault.value}", Bounds(records=records, restarts=0, fault=fault)
            )
            for fault in (Fault.OLD_LOG, Fault.OLD_CONTROL, Fault.OLD_DISK)
        ),
        Configuration(
            "replicas added and removed", Bounds(records=1, restarts=0, moves=2, spare=1)
        ),
        Configuration(
            "an older server goes on", Bounds(sessions=2, records=1, older=True, restarts=1)
        ),
        Configuration("four sessions", Bounds(sessions=4, records=1, restarts=0)),
        Configuration("crashes and restarts", Bounds(records=records)),
        *(
            Configuration(
                f"one fault: {fault.value}", Bounds(records=records, restarts=0, fault=fault)
            )
            for fault in (
                Fault.LOG_LOST,
                Fault.DISK_LOST,
                Fault.DAMAGED_RECORD,
                Fault.METADATA_LOST,
            )
        ),
    ]


def with_bug(bug: Bug) -> Bounds:
    """Return the bounds within which the search must find ``bug``."""
    bugs = frozenset({bug})
    match bug:
        case Bug.COUNTS_LOST_LOG:
            return Bounds(restarts=0, fault=Fault.LOG_LOST, bugs=bugs)
        case Bug.COUNTS_TORN_DAMAGE:
            return Bounds(restarts=0, fault=Fault.DAMAGED_RECORD, bugs=bugs)
        case Bug.COUNTS_EMPTIED:
            return Bounds(restarts=0, fault=Fault.DISK_LOST, bugs=bugs)
        case Bug.OPENS_OLDER_TAIL:
            return Bounds(records=1, restarts=0, fault=Fault.OLD_LOG, bugs=bugs)
        case Bug.CUTS_COMMITTED:
            return Bounds(restarts=0, fault=Fault.METADATA_LOST, bugs=bugs)
        case Bug.SKIPS_CAS | Bug.NO_FENCE:
            return Bounds(sessions=2, records=1, restarts=0, older=True, bugs=bugs)
        case Bug.NEW_VOTES:
            return Bounds(records=1, restarts=0, spare=1, moves=2, bugs=bugs)
        case Bug.KEEPS_TAIL:
            return Bounds(restarts=0, bugs=bugs)
        case _:
            return Bounds(records=1, restarts=0, bugs=bugs)
