"""The console's timeline: what counts as a change between two samples, and what does not."""

from __future__ import annotations

from dataclasses import replace

from tests.support.console_world import MEMBERS, NO_SERVER, SILENT, metadata, sample, storage
from waltz.admin.core.sample import Sample, ServerSample, sessions_since
from waltz.console.core.changes import ChangeKind, changes
from waltz.console.core.history import History
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    OwnedPartition,
    PartitionAssignment,
    ReplicaAssignments,
)
from waltz.protocol.damaged_ranges import DamagedRange

ALL = ("a:1", "b:1", "c:1")
DAMAGED = storage(damaged=(DamagedRange(0, 5, 7),))


def texts(before: Sample, now: Sample) -> list[str]:
    return [each.text for each in changes(before, now)]


def test_equal_samples_make_no_entry() -> None:
    assert changes(sample(), sample(12.0, marks={0: 500, 1: 7})) == []


def test_begin_and_end_of_a_recovery_are_entries() -> None:
    begun = sample(sessions={0: metadata(0, 5, without=ALL)})
    open_again = sample(sessions={0: metadata(0, 5, without=("c:1",))})
    assert texts(sample(), begun) == ["Partition 0 began a recovery: store session 5"]
    assert texts(begun, open_again) == [
        "Partition 0 has recovered in session 5: 2 of 3 replicas take part"
    ]
    assert texts(sample(), open_again) == [
        "Partition 0 began a recovery: store session 5",
        "Partition 0 has recovered in session 5: 2 of 3 replicas take part",
    ]


def test_partition_whose_first_session_has_not_begun_makes_no_entry() -> None:
    """Its server has written the znode already."""
    unknown = replace(sample(), metadata={})
    acquired = replace(sample(), metadata={0: NEW_PARTITION})
    assert acquired.session(0) is None
    assert texts(unknown, acquired) == []
    assert sessions_since(acquired, sample(), 0) == 5


def test_replica_that_leaves_and_joins_a_session_makes_an_entry_each() -> None:
    without = sample(sessions={1: metadata(1, without=("c:1",))})
    left, joined = changes(sample(), without), changes(without, sample())
    assert [(each.kind, each.bad) for each in left + joined] == [
        (ChangeKind.REPLICA, True),
        (ChangeKind.REPLICA, False),
    ]
    assert left[0].text == "The replica of partition 1 on c:1 left session 4"


def test_process_that_stops_and_answers_again_makes_an_entry_each() -> None:
    now = sample(storages={"b:1": SILENT}, server=ServerSample(problem="refused"))
    assert texts(sample(), now) == [
        "Server 3 stopped answering: refused",
        "Storage b:1 stopped answering: connection refused",
    ]
    assert texts(now, sample()) == ["Server 3 answers again", "Storage b:1 answers again"]
    assert texts(now, now) == []


def test_partition_that_moves_or_loses_its_server_makes_an_entry() -> None:
    moved = PartitionAssignment(1, 2, {3: (OwnedPartition(0, 8), OwnedPartition(1, 5))})
    now = sample(membership=replace(MEMBERS, assignment=moved))
    assert texts(sample(), now) == ["Partition 0 moved to server 3, generation 8"]
    lost = changes(sample(), sample(membership=NO_SERVER))
    assert [each.text for each in lost] == [
        "Partition 0 lost its server",
        "Partition 1 lost its server",
    ]
    assert all(each.bad for each in lost)


def test_found_and_repaired_damage_are_entries() -> None:
    before, now = sample(), sample(storages={"c:1": DAMAGED})
    assert texts(before, now) == ["Storage c:1 found 3 damaged records, 3 in all"]
    assert texts(now, before) == ["3 damaged records of storage c:1 were repaired, 0 are left"]


def test_storage_that_stops_answering_makes_no_entry_of_a_repair() -> None:
    kinds = [
        each.kind
        for each in changes(sample(storages={"c:1": DAMAGED}), sample(storages={"c:1": SILENT}))
    ]
    assert kinds == [ChangeKind.STORAGE]


def test_assignment_changes() -> None:
    now = sample()
    fewer = {**now.maps.assignments.partitions, "c:1": (1,)}
    now = replace(now, maps=replace(now.maps, assignments=ReplicaAssignments(fewer)))
    assert texts(sample(), now) == ["Partition 0 was unassigned from storage c:1"]
    assert "Partition 0 was assigned to storage c:1" in texts(now, sample())


def test_history_keeps_both_times_of_a_change() -> None:
    history = History()
    assert history.add(sample(1.0), 100.0) is None
    assert history.add(sample(3.0, storages={"b:1": SILENT}), 102.0) is not None
    (entry,) = history.entries
    assert (entry.after, entry.at) == (100.0, 102.0)


def test_rate_after_a_long_gap_is_unknown() -> None:
    history = History()
    history.add(sample(1.0), 1.0)
    assert history.add(sample(500.0, storages={"b:1": SILENT}), 500.0) is None
    assert [point.transactions_per_second for point in history.rates] == [None]
    assert len(history.entries) == 1


def test_rate_is_known_after_the_longest_gap_that_was_chosen() -> None:
    history = History(120.0)
    history.add(sample(0.0), 0.0)
    assert history.add(sample(60.0), 60.0) is not None
    assert history.add(sample(181.0), 181.0) is None


def test_rate_of_cluster_is_unknown_if_one_partition_is() -> None:
    history = History()
    history.add(sample(1.0), 1.0)
    history.add(sample(2.0, marks={0: 110, 1: 100}), 2.0)
    history.add(sample(3.0, marks={0: 120, 1: None}), 3.0)
    assert [point.transactions_per_second for point in history.rates] == [10.0, None]


def test_timeline_is_bounded() -> None:
    history = History()
    for number in range(1000):
        storages = {"b:1": SILENT} if number % 2 else {}
        history.add(sample(float(number), storages=storages), float(number))
    assert (len(history.entries), len(history.rates)) == (300, 180)
