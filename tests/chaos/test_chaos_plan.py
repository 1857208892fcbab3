"""Test that the planned faults keep to the promise, and that every kind of fault is planned."""

from __future__ import annotations

from random import Random

from tests.chaos.checker import Guarantee, Violation
from tests.chaos.history import Append, Event, Fault, Note, Outcome
from tests.chaos.plan import Group, Kind, Places, Planned, choose
from tests.chaos.report import Run, page

STORAGES, SERVERS = ("storage/0", "storage/1", "storage/2"), ("server/0", "server/1")
PLACES = Places(STORAGES, SERVERS, mounted=("storage/0",), logged=("storage/2",))
_STEPS = 5000


def test_planned_faults_stay_within_guarantee_and_cover_every_kind() -> None:
    random = Random(7)
    active: list[Planned] = []
    kinds: set[Kind] = set()
    for _ in range(_STEPS):
        if active and random.random() < 0.4:
            active.remove(random.choice(active))
        fault = choose(random, random.choice(list(Group)), active, PLACES)
        if fault is None:
            continue
        active.append(fault)
        kinds.add(fault.kind)
        groups = [one.group for one in active]
        assert len(groups) == len(set(groups)), "at most one fault of a group"
        assert not {Group.DISK, Group.REPLICAS} <= set(groups)
        storages = [one.target for one in active if one.target.startswith("storage/")]
        assert len(storages) == len(set(storages)) <= 2
    assert kinds == set(Kind)


def kinds_without_mounts(group: Group) -> set[Kind]:
    """Return the kinds of faults of a group that are chosen if no disk is a mount of its own."""
    random = Random(7)
    places = Places(STORAGES, SERVERS, mounted=())
    found = [choose(random, group, (), places) for _ in range(_STEPS)]
    return {fault.kind for fault in found if fault is not None}


def test_plan_without_mounted_disks_leaves_out_full_and_stalled_disks() -> None:
    kinds = kinds_without_mounts(Group.ABSENCE)
    assert Kind.KILL_STORAGE in kinds
    assert not kinds & {Kind.FULL_DISK, Kind.STALLED_DISK}


def test_plan_without_volumes_of_logs_leaves_out_their_faults() -> None:
    kinds = kinds_without_mounts(Group.DISK)
    assert Kind.OLD_DATA in kinds
    assert not kinds & {Kind.OLD_WAL, Kind.LOST_WAL}


def test_report_shows_faults_closures_and_violations_without_other_files() -> None:
    events: list[Event] = [
        Append("c0", 0, "a", 0.1, 0.2, Outcome.ACKNOWLEDGED, 0),
        Append("c0", 0, "b", 0.3, 9.0, Outcome.ACKNOWLEDGED, 1),
        Fault("disk", "bits <flipped>", "storage/1", 1.0, 4.0),
        Note(5.0, "storage/1 has ended by itself"),
    ]
    violation = Violation(Guarantee.DURABILITY, 0, "a is lost")
    html = page(Run(3, 10.0, 8.0, 1, ""), events, [violation])
    for text in ("seed 3", "a is lost", "bits &lt;flipped&gt;", "closed for 8.8 s", "by itself"):
        assert text in html
    assert "http" not in html
    assert "All guarantees held" in page(Run(3, 10.0, 8.0, 1, ""), events, [])
