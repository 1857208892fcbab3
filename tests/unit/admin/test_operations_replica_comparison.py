"""A comparison of replicas over connections: failures of storages, older storages, its proof."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.replica_model import Model
from waltz.admin import replica_comparison
from waltz.admin.core.comparison import RangeSum
from waltz.admin.core.steps import ChangeAssignment, EqualReplicas
from waltz.admin.execution import OrderExecutor
from waltz.admin.replica_comparison import (
    NotEqual,
    UnknownPartition,
    compare_replicas,
    prove_equality,
    read_and_sum,
)
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT, ConnectionLost
from waltz.protocol import UnsupportedByPeer
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/log"
A, B, C = "a:1", "b:1", "c:1"
LAST = 49
BOTH = EqualReplicas(0, frozenset({A, B}))


class Admin:
    """A connection to a storage with the records 0 to `LAST`; the test changes what it answers."""

    def __init__(self) -> None:
        self.data = [b"x"] * (LAST + 1)
        self.damaged: int | None = None
        self.failure: Exception | None = None
        self.is_old = False
        self.answers_for_more = False
        self.ids_per_sum = LAST + 1
        """A checksum covers at most so many transactions, because a storage bounds its bytes."""
        self.requests: list[tuple[int, int]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def records(self, partition: int, first_id: int, count: int) -> RecordBatch:
        self.requests.append((first_id, count))
        last = min(first_id + count, len(self.data))
        return RecordBatch.of([self._record(each) for each in range(first_id, last)])

    async def range_checksum(self, partition: int, first_id: int, last_id: int) -> RangeSum:
        if self.failure is not None:
            raise self.failure
        if self.is_old:
            raise UnsupportedByPeer("range checksum")
        if self.answers_for_more:
            return RangeSum(last_id + 1)
        count = min(last_id - first_id + 1, self.ids_per_sum)
        records = await self.records(partition, first_id, count)
        return RangeSum(first_id - 1).plus(records)

    def _record(self, each: int) -> Record:
        data = self.data[each]
        return Record(each, ReqId(1, 1, 0, each), 0, data, checksum(data) ^ (each == self.damaged))


async def new_cluster() -> Cluster:
    """Create a cluster of one partition with the storages A and B."""
    made = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(made.store, ROOT, "log", 1, key=uuid.UUID(int=1))
    await made.add_storage_node(A, 0, 9001)
    await made.add_storage_node(B, 1, 9001)
    return made


def observed_admins(patched: pytest.MonkeyPatch, **of_b: int) -> dict[str, Admin]:
    """Replace the connections to A and B, which are observed as healthy up to `LAST`.

    ``of_b`` are other values of the replica on B.
    """
    found = {A: Admin(), B: Admin()}
    model = Model({A: 0, B: 1, C: 2}, {0: frozenset({A, B})})
    model.append(LAST + 1)
    for storage in (A, B):
        model.update(storage, 0, low_water_mark=LAST)
    model.update(B, 0, **of_b)

    class Observer:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        async def observe(self, _: object) -> Any:
            return model.observed()

    async def open_admin(storage: str, *_: object) -> Admin:
        return found[storage]

    patched.setattr(replica_comparison, "ReplicaObserver", Observer)
    patched.setattr(StorageAdmin, "open", open_admin)
    return found


@pytest.fixture
async def cluster() -> Cluster:
    return await new_cluster()


@pytest.fixture
def admins(monkeypatch: pytest.MonkeyPatch) -> dict[str, Admin]:
    return observed_admins(monkeypatch)


async def test_equal_replicas_are_compared_to_the_end_in_slices(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    reports: list[tuple[int, int]] = []
    result = await compare_replicas(
        cluster, PLAINTEXT, 0, slice_ids=20, on_compared=lambda at, end: reports.append((at, end))
    )
    assert (result.is_sound, result.last_id, result.ends) == (True, LAST, {})
    assert reports == [(19, LAST), (39, LAST), (LAST, LAST)]
    await prove_equality(cluster, PLAINTEXT, BOTH)


async def test_proof_before_a_change_reports_its_progress(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    """It has no time limit: an observer sees by its progress that it is not stuck."""
    reports: list[tuple[int, int]] = []
    executor = OrderExecutor(
        cluster, PLAINTEXT, on_compared=lambda at, end: reports.append((at, end))
    )
    await executor.perform(ChangeAssignment((), (BOTH,)))
    assert reports == [(LAST, LAST)]


async def test_comparison_ends_after_one_range_when_it_may_not_continue(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    """The range before it ends is its progress, also if the observation has taken its time."""
    result = await compare_replicas(cluster, PLAINTEXT, 0, slice_ids=20, may_continue=lambda: False)
    assert result.compared_until == 19
    assert admins[A].requests == [(0, 20)]


@given(
    differing=st.none() | st.integers(0, LAST),
    slice_ids=st.integers(1, LAST + 1),
    limits=st.tuples(st.integers(1, LAST + 1), st.integers(1, LAST + 1)),
    pauses=st.randoms(use_true_random=False),
)
def test_comparison_in_parts_finds_the_same_difference_as_a_whole_one(
    differing: int | None, slice_ids: int, limits: tuple[int, int], pauses: random.Random
) -> None:
    """Each part begins after what the part before has compared."""

    async def compare() -> None:
        with pytest.MonkeyPatch.context() as patched:
            made = await new_cluster()
            storages = observed_admins(patched)
            for storage, limit in zip((A, B), limits, strict=True):
                storages[storage].ids_per_sum = limit
            if differing is not None:
                storages[B].data[differing] = b"y"
            first_id = 0
            while True:
                result = await compare_replicas(
                    made,
                    PLAINTEXT,
                    0,
                    first_id=first_id,
                    slice_ids=slice_ids,
                    may_continue=lambda: pauses.random() < 0.5,
                )
                assert not result.problems
                assert not result.ends
                if result.difference is not None or result.compared_until == LAST:
                    break
                assert result.compared_until >= first_id, "each part makes progress"
                first_id = result.compared_until + 1
            found = result.difference
            assert (None if found is None else found.transaction_id) == differing

    asyncio.run(compare())


async def test_slice_that_a_storage_did_not_answer_is_not_compared(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    admins[A].failure = ConnectionLost("the storage has ended")
    reports: list[tuple[int, int]] = []
    result = await compare_replicas(
        cluster, PLAINTEXT, 0, on_compared=lambda at, end: reports.append((at, end))
    )
    assert (result.compared_until, result.difference) == (-1, None)
    assert reports == [(-1, LAST)]


async def test_answer_for_more_than_was_asked_is_a_problem_and_ends_the_comparison(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    admins[A].answers_for_more = True
    result = await compare_replicas(cluster, PLAINTEXT, 0)
    assert result.problems[A] == f"asked for records up to {LAST}, it answered for {LAST + 1}"


@pytest.mark.parametrize(("differing", "expected"), [(20, 20), (30, 30), (31, None)])
async def test_replica_outside_the_session_is_compared_up_to_its_low_water_mark(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, differing: int, expected: int | None
) -> None:
    """It has received the transactions above its local mark since its last session began."""
    admins = observed_admins(monkeypatch, session_id=-1, low_water_mark=30, local_low_water_mark=10)
    admins[B].data[differing] = b"y"
    found = (await compare_replicas(cluster, PLAINTEXT, 0)).difference
    assert (None if found is None else found.transaction_id) == expected


async def test_partition_that_does_not_exist_cannot_be_compared(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    with pytest.raises(UnknownPartition, match="partition 7 does not exist"):
        await compare_replicas(cluster, PLAINTEXT, 7)


@pytest.mark.parametrize("is_old", [False, True])
async def test_replicas_that_differ_are_not_proven_to_be_equal(
    cluster: Cluster, admins: dict[str, Admin], is_old: bool
) -> None:
    admins[B].data[LAST] = b"y"
    admins[B].is_old = is_old
    expected = f"transaction {LAST} of partition 0 differs on {A} and on {B}"
    with pytest.raises(NotEqual, match=expected):
        await prove_equality(cluster, PLAINTEXT, BOTH)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ConnectionLost("the storage has ended"), "the storage has ended"),
        (TimeoutError(), "no answer within 60 s"),
    ],
)
async def test_replica_that_cannot_be_read_is_not_proven_to_be_equal(
    cluster: Cluster, admins: dict[str, Admin], failure: Exception, reason: str
) -> None:
    admins[B].failure = failure
    with pytest.raises(NotEqual, match=f"storage {B} cannot be compared: {reason}"):
        await prove_equality(cluster, PLAINTEXT, BOTH)


async def test_storage_that_left_the_cluster_is_not_proven_to_be_equal(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    await cluster.remove_storage_node(B)
    with pytest.raises(NotEqual, match=f"storage {B} cannot be compared: it is not in the cluster"):
        await prove_equality(cluster, PLAINTEXT, BOTH)


async def test_damaged_record_of_an_old_storage_is_named(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    admins[B].is_old, admins[B].damaged = True, 17
    with pytest.raises(NotEqual, match=f"storage {B} cannot be compared: transaction 17 is damag"):
        await prove_equality(cluster, PLAINTEXT, BOTH)


async def test_records_of_an_old_storage_are_read_in_parts_and_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_comparison, "_RECORDS_AT_ONCE", 20)
    admin: Any = Admin()
    whole = await admin.range_checksum(0, 5, LAST)
    admin.requests.clear()
    assert await read_and_sum(admin, 0, 5, LAST) == whole
    assert admin.requests == [(5, 20), (25, 20), (45, 5)]
    assert await read_and_sum(admin, 0, 5, LAST + 9) == whole
