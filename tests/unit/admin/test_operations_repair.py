"""The order that repairs damaged records from peers: its steps, its sources, its requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.support.replica_model import Model
from waltz.admin import CopyFailed, RecordRepair, forecast
from waltz.admin.core.comparison import RangeSum
from waltz.admin.core.replicas import ReplicaObservation
from waltz.admin.core.steps import Done, Refuse, RepairRecords, Wait
from waltz.admin.peer_repair import repair_from_peer
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import Record, RecordBatch, ReqId

A, B, C = "a:1", "b:1", "c:1"
MARK = 50


@pytest.fixture
def cluster() -> Model:
    """Partitions 0 and 1 on A, B and C; their store sessions began after the record 50."""
    made = Model({A: 0, B: 1, C: 2}, dict.fromkeys(range(2), frozenset({A, B, C})))
    made.append(100)
    for storage in (A, B, C):
        for partition in (0, 1):
            made.update(storage, partition, local_low_water_mark=MARK)
    return made


def observe(cluster: Model, **damaged: tuple[DamagedRange, ...]) -> ReplicaObservation:
    """Return the model's observation with damaged records at the storages A, B and C."""
    observation = cluster.observed()
    storages = {
        storage: replace(report, damaged=damaged.get(storage[0], ()))
        for storage, report in observation.storages.items()
    }
    return replace(observation, storages=storages)


# ---- the plan


def test_repair_takes_each_damaged_range_from_a_healthy_replica(cluster: Model) -> None:
    damaged = (DamagedRange(0, 3, 4), DamagedRange(0, 9, 9), DamagedRange(1, 5, 5))
    planned = forecast(RecordRepair(0, A), observe(cluster, a=damaged))
    assert planned.steps == (RepairRecords(B, A, 0, 3, 4), RepairRecords(B, A, 0, 9, 9))
    assert planned.end == Done()
    assert [str(step) for step in planned.steps] == [
        "records 3-4 of partition 0 are repaired at storage a:1 from storage b:1",
        "record 9 of partition 0 is repaired at storage a:1 from storage b:1",
    ]


def test_repair_takes_no_record_from_a_replica_that_has_it_damaged_too(cluster: Model) -> None:
    damaged = (DamagedRange(0, 3, 4), DamagedRange(0, 9, 12))
    observation = observe(cluster, a=damaged, b=(DamagedRange(0, 12, 20), DamagedRange(1, 3, 3)))
    planned = forecast(RecordRepair(0, A), observation)
    assert planned.steps == (RepairRecords(B, A, 0, 3, 4), RepairRecords(C, A, 0, 9, 12))


def test_repair_takes_no_record_from_within_a_damaged_range_of_a_replica(cluster: Model) -> None:
    observation = observe(cluster, a=(DamagedRange(0, 9, 9),), b=(DamagedRange(0, 8, 9),))
    planned = forecast(RecordRepair(0, A), observation)
    assert planned.steps == (RepairRecords(C, A, 0, 9, 9),)


def test_repair_of_undamaged_replica_does_nothing(cluster: Model) -> None:
    assert RecordRepair(0, A).next_step(observe(cluster, b=(DamagedRange(0, 1, 1),))) == Done()
    del cluster.disks[A][0]
    assert RecordRepair(0, A).next_step(observe(cluster, a=(DamagedRange(0, 1, 1),))) == Done()


def test_repair_ends_at_the_local_low_water_mark(cluster: Model) -> None:
    planned = forecast(RecordRepair(0, A), observe(cluster, a=(DamagedRange(0, 48, 60),)))
    assert planned.steps == (RepairRecords(B, A, 0, 48, MARK),)
    assert isinstance(planned.end, Refuse)
    assert planned.end.reason == (
        "records 51-60 of partition 0 at storage a:1 cannot be repaired yet: the local low-water "
        "mark is 50; run the same command again when a server has begun the next store session"
    )


def test_repair_needs_a_source_whose_mark_reaches_the_records(cluster: Model) -> None:
    cluster.update(B, 0, local_low_water_mark=8)
    damaged = (DamagedRange(0, 9, 9),)
    assert RecordRepair(0, A).next_step(observe(cluster, a=damaged)) == RepairRecords(C, A, 0, 9, 9)
    cluster.down = {C}
    assert RecordRepair(0, A).next_step(observe(cluster, a=damaged)) == Wait(
        "partition 0 has no healthy replica from which record 9 at storage a:1 can be repaired"
    )


def test_repair_continues_with_records_that_have_a_source(cluster: Model) -> None:
    cluster.down = {C}
    damaged = (DamagedRange(0, 3, 4), DamagedRange(0, 9, 9), DamagedRange(0, 70, 70))
    observation = observe(cluster, a=damaged, b=(DamagedRange(0, 4, 4),))
    planned = forecast(RecordRepair(0, A), observation)
    assert planned.steps == (RepairRecords(B, A, 0, 3, 3), RepairRecords(B, A, 0, 9, 9))
    assert planned.end == Wait(
        "partition 0 has no healthy replica from which record 4 at storage a:1 can be repaired"
    )


def test_repair_uses_only_the_source_that_is_named(cluster: Model) -> None:
    observation = observe(cluster, a=(DamagedRange(0, 9, 9),))
    assert RecordRepair(0, A, C).next_step(observation) == RepairRecords(C, A, 0, 9, 9)
    observation = observe(cluster, a=(DamagedRange(0, 9, 9),), c=(DamagedRange(0, 9, 9),))
    assert isinstance(RecordRepair(0, A, C).next_step(observation), Wait)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (RecordRepair(7, A), "partition 7 does not exist"),
        (RecordRepair(0, A, A), "storage a:1 cannot be repaired from itself"),
        (RecordRepair(0, "d:1"), "storage d:1 is in no group of the cluster"),
    ],
)
def test_repair_that_is_impossible_is_refused(
    cluster: Model, order: RecordRepair, reason: str
) -> None:
    assert order.next_step(observe(cluster)) == Refuse(reason)


def test_repair_waits_for_storage_that_does_not_answer(cluster: Model) -> None:
    cluster.down = {A}
    reason = "storage a:1 does not answer: it is down"
    assert RecordRepair(0, A).next_step(observe(cluster)) == Wait(reason)


def test_scope_of_a_repair_includes_damaged_records() -> None:
    scope = RecordRepair(0, A, C).scope
    assert (scope.partitions, scope.storages, scope.damage) == ((0,), frozenset({A, C}), True)


# ---- the requests


@dataclass
class Source:
    """A storage that answers with at most ``most`` records, without ``lost``."""

    most: int = 100
    lost: int | None = None
    summed: int = 100
    """The last id that a range checksum includes."""
    old: bool = False

    async def records(self, partition: int, first_id: int, max_records: int) -> RecordBatch:
        first = first_id + 1 if first_id == self.lost else first_id
        count = min(max_records, self.most)
        return RecordBatch.of(
            Record(n, ReqId(1, 2, partition, n), 0, b"x", 7) for n in range(first, first + count)
        )

    async def range_checksum(self, partition: int, first_id: int, last_id: int) -> RangeSum:
        if self.old:
            raise UnsupportedByPeer("RangeChecksumRequest needs storage admin version 1")
        return RangeSum(min(last_id, self.summed), 10, 1000 * first_id + last_id)


@dataclass
class Destination:
    """A storage that notes the ids and the checksum of each repair."""

    repaired: list[tuple[list[int], int]] = field(default_factory=list)

    async def repair(self, partition: int, records: RecordBatch, checksum: int) -> None:
        self.repaired.append(([each.transaction_id for each in records], checksum))


async def repaired(source: Source) -> tuple[list[tuple[list[int], int]], list[int]]:
    """Repair the records 3 to 9, four by each request; return the requests and the progress."""
    destination, progress = Destination(), list[int]()
    await repair_from_peer(
        cast(Any, source),
        destination,
        DamagedRange(0, 3, 9),
        batch_size=4,
        progress=lambda at, _last: progress.append(at),
    )
    return destination.repaired, progress


async def test_repair_sends_batches_with_the_checksums_of_the_source() -> None:
    assert await repaired(Source()) == (
        [([3, 4, 5, 6], 3006), ([7, 8, 9], 7009)],
        [6, 9],
    )


async def test_repair_continues_after_an_answer_with_fewer_records() -> None:
    requests, progress = await repaired(Source(most=3))
    assert [ids for ids, _ in requests] == [[3, 4, 5], [6, 7, 8], [9]]
    assert progress == [5, 8, 9]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (Source(lost=7), "the source does not hold transaction 7 of partition 0"),
        (Source(most=0), "the source does not hold transaction 3 of partition 0"),
        (Source(summed=5), "the source computes no checksum of transaction 6 of partition 0"),
        (Source(old=True), "RangeChecksumRequest needs storage admin version 1"),
    ],
)
async def test_repair_from_a_source_that_lacks_something_fails(source: Source, reason: str) -> None:
    with pytest.raises(CopyFailed, match=reason):
        await repaired(source)
