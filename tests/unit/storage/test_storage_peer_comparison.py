"""A storage that compares its replicas with those of other storages: the plan, and three nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.support.eventually import eventually
from tests.support.replica_model import Model
from tests.support.storage_nodes import RECORDS, World, fill, ports, running
from tests.support.virtual_time import on_virtual_time
from waltz.admin.core.comparison import (
    SLICE_IDS,
    Comparison,
    ComparisonResult,
    Difference,
    RangeSum,
)
from waltz.admin.core.replicas import ReplicaObservation
from waltz.admin.replica_comparison import SumQueries
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.store import MetadataStore
from waltz.net import TlsConfigError
from waltz.protocol.checksums import as_signed, crc32
from waltz.protocol.records import RecordBatch
from waltz_storage.core.scrub.comparison_plan import (
    due_partitions,
    replica_comparison,
    slice_size,
)
from waltz_storage.core.scrub.differences import Differences
from waltz_storage.shell.node import StorageNode
from waltz_storage.shell.peer_comparison import _BURST_BYTES, _LEAST_BYTES, PeerComparison
from waltz_storage.shell.peers import Peers, PeersUnknown

A, B, C = "a:1", "b:1", "c:1"
ALL = frozenset({A, B, C})


# ---- the plan


def model() -> Model:
    """Return a cluster with partition 0 on three storages."""
    return Model({A: 0, B: 1, C: 2}, {0: ALL})


def limits(observation: ReplicaObservation) -> tuple[tuple[str, ...], int]:
    """Return the compared storages and the last id of the comparison of partition 0."""
    comparison = replica_comparison(observation, 0, 10)
    return comparison.storages, comparison.last_id


def test_due_partitions_of_successive_passes_are_each_partition_once() -> None:
    assigned = dict.fromkeys(range(7), ALL)
    passes = [due_partitions(assigned, passes) for passes in range(4, 7)]
    assert sorted(p for due in passes for p in due) == list(range(7))
    assert all(2 <= len(due) <= 3 for due in passes)


def test_partition_with_one_replica_is_never_due() -> None:
    assigned = {0: frozenset({A})}
    assert [due_partitions(assigned, passes) for passes in range(3)] == [()] * 3


def test_replicas_are_compared_up_to_their_local_marks() -> None:
    made = model()
    made.append(100)
    for storage, mark in ((A, 50), (B, 50), (C, 20)):
        made.update(storage, 0, local_low_water_mark=mark)
    comparison = replica_comparison(made.observed(), 0, 1000)
    assert (comparison.last_id, comparison.next_range) == (50, (0, 20))


def test_replica_that_is_absent_is_not_compared() -> None:
    made = model()
    made.append(100)
    for storage in ALL:
        made.update(storage, 0, local_low_water_mark=50)
    assert limits(made.observed()) == ((A, B, C), 50)
    made.down.add(C)
    del made.disks[B][0]
    observation = made.observed()
    assert limits(observation) == ((A,), 50)
    assert replica_comparison(observation, 0, 10).result.problems == {
        B: "it does not hold the partition",
        C: "it is down",
    }


def test_replica_outside_of_the_session_is_not_compared() -> None:
    """Its mark may be that of a session that never opened."""
    made = model()
    made.append(100)
    for storage, mark in ((A, 50), (B, 50), (C, 60)):
        made.update(storage, 0, local_low_water_mark=mark)
    made.update(C, 0, session_id=made.disks[C][0].session_id + 1)
    assert limits(made.observed()) == ((A, B), 50)


def test_one_transaction_is_compared_again_where_all_have_it() -> None:
    made = model()
    made.append(100)
    for storage, mark in ((A, 50), (B, 50), (C, 20)):
        made.update(storage, 0, local_low_water_mark=mark)
    comparison = replica_comparison(made.observed(), 0, 10, only_id=20)
    assert (comparison.storages, comparison.next_range) == ((A, B, C), (20, 20))
    comparison = replica_comparison(made.observed(), 0, 10, only_id=21)
    assert (comparison.storages, comparison.next_range) == ((A, B), (21, 21))
    assert replica_comparison(made.observed(), 0, 10, only_id=51).next_range is None


@pytest.mark.parametrize(
    ("log_bytes", "records", "slice_ids"),
    [(0, 0, SLICE_IDS), (1000, 10, SLICE_IDS), (40 << 20, 40, 4), (20 << 20, 2, 1)],
)
def test_slice_has_about_four_mebibytes(log_bytes: int, records: int, slice_ids: int) -> None:
    assert slice_size(log_bytes, records) == slice_ids


# ---- what is known


FOUND = Difference(5, (frozenset({A, B}), frozenset({C})))


def result(
    until: int,
    difference: Difference | None = None,
    ends: dict[str, int] | None = None,
    problems: dict[str, str] | None = None,
) -> ComparisonResult:
    return ComparisonResult(100, until, difference, ends or {}, problems or {})


def known() -> Differences:
    """Return differences that know `FOUND` in partition 3."""
    differences = Differences()
    assert differences.note(3, result(4, FOUND), ALL) == FOUND
    return differences


def test_difference_that_is_found_again_is_not_new() -> None:
    differences = known()
    assert differences.note(3, result(4, FOUND), ALL) is None
    assert differences.known == {3: FOUND}
    other = Difference(2, FOUND.versions)
    assert differences.note(3, result(1, other), ALL) == other
    assert differences.found == 2


@pytest.mark.parametrize(
    ("found", "absent"),
    [
        (Difference(5, (frozenset({A}), frozenset({C}))), B),
        (Difference(50, (frozenset({A}), frozenset({B}))), C),
    ],
)
def test_difference_is_not_replaced_while_one_of_its_storages_is_absent(
    found: Difference, absent: str
) -> None:
    differences = known()
    until = found.transaction_id - 1
    assert differences.note(3, result(until, found, problems={absent: "it is down"}), ALL) is None
    assert differences.known == {3: FOUND}


def test_later_difference_replaces_one_that_is_settled() -> None:
    differences = known()
    later = Difference(50, FOUND.versions)
    assert differences.note(3, result(49, later), ALL) == later
    assert differences.known == {3: later}


@pytest.mark.parametrize(
    "later",
    [
        result(4),
        result(100, problems={C: "it is down"}),
        result(100, ends={C: 4}),
    ],
)
def test_difference_is_known_while_nothing_shows_that_it_is_repaired(
    later: ComparisonResult,
) -> None:
    differences = known()
    assert differences.note(3, later, ALL) is None
    assert differences.known == {3: FOUND}


def test_difference_is_forgotten_when_its_storages_are_the_same_beyond_it() -> None:
    differences = known()
    differences.note(3, result(5, ends={C: 5}, problems={"d:1": "it is down"}), ALL)
    assert differences.known == {}


def test_storage_that_lost_its_assignment_does_not_keep_a_difference() -> None:
    differences = known()
    differences.note(3, result(100, problems={C: "it is down"}), frozenset({A, B}))
    assert differences.known == {}


def test_difference_of_a_replica_that_moved_is_replaced_by_that_of_its_new_storage() -> None:
    """Otherwise the storage would name a replica that was removed, and not the wrong one."""
    differences = known()
    moved = Difference(5, (frozenset({A, B}), frozenset({"d:1"})))
    assert differences.note(3, result(4, moved), frozenset({A, B, "d:1"})) == moved
    assert differences.known == {3: moved}


def test_difference_of_a_partition_that_was_closed_is_forgotten() -> None:
    differences = known()
    differences.keep({2, 4})
    assert differences.known == {}


def test_comparison_of_one_replica_alone_says_nothing() -> None:
    comparison = Comparison({A: 10, B: "it is down"}, 10)
    differences = known()
    differences.note(3, comparison.result, ALL)
    assert differences.known == {3: FOUND}


@on_virtual_time
async def test_comparison_reads_no_faster_than_its_rate() -> None:
    unused: Any = None
    clock = asyncio.get_running_loop().time
    comparison = PeerComparison(Differences(), unused, unused, 1 << 20, clock)
    begun = clock()
    await comparison._wait(_BURST_BYTES)
    assert clock() == begun
    await comparison._wait(6 << 20)
    assert clock() - begun == pytest.approx(6)


class PreparedComparison(PeerComparison):
    """Compares with prepared results."""

    def __init__(self, *results: ComparisonResult) -> None:
        unused: Any = None
        self.noted = Differences()
        super().__init__(self.noted, unused, unused, 1, lambda: 0.0)
        self.ids: list[int | None] = []
        self._results = list(results)

    @override
    async def _result(
        self, partition: int, slice_ids: int, only_id: int | None = None
    ) -> tuple[ComparisonResult, frozenset[str]]:
        self.ids.append(only_id)
        return self._results.pop(0), ALL


async def test_difference_that_has_gone_meanwhile_is_not_reported() -> None:
    gone = PreparedComparison(result(4, FOUND), result(5))
    await gone._compare(3, 10)
    assert (gone.ids, gone.noted.known) == ([None, 5], {})
    found = PreparedComparison(result(4, FOUND), result(4, FOUND))
    await found._compare(3, 10)
    assert (found.ids, found.noted.known) == ([None, 5], {3: FOUND})


async def test_storage_that_does_not_answer_is_not_asked_again_in_the_same_pass() -> None:
    made = model()
    made.down = {B, C}
    asked: list[list[str]] = []

    class Observed(Peers):
        @override
        async def observe(
            self, partitions: Sequence[int], *, without: Iterable[str] = (), damage: bool = False
        ) -> tuple[ReplicaObservation, StoreParams]:
            asked.append([s for s in (A, B, C) if s not in without])
            unused: Any = None
            return made.observed(), unused

    unused: Any = None
    peers = Observed(unused, unused, unused)
    comparison = PeerComparison(Differences(), unused, peers, 1, lambda: 0.0)
    results = [await comparison._compare(0, 10) for _ in range(2)]
    assert asked == [[A, B, C], [A]]
    assert [each.problems for each in results] == [{B: "it is down", C: "it is down"}] * 2


async def test_partition_that_is_known_to_differ_is_due_while_it_has_two_replicas() -> None:
    assigned = {3: ALL, 4: ALL}

    class Assigned(Peers):
        @override
        async def assigned(self, partitions: Sequence[int]) -> dict[int, frozenset[str]]:
            return assigned

    unused: Any = None
    differences = known()
    peers = Assigned(unused, unused, unused)
    comparison = PeerComparison(differences, unused, peers, 1, lambda: 0.0)
    assert [await comparison._due((3, 4), passes) for passes in (0, 1, 2)] == [(3,), (3,), (3, 4)]
    assigned[3] = frozenset({A})
    assert await comparison._due((3, 4), 0) == ()
    assert differences.known == {}


async def test_offset_of_a_storage_moves_the_pass_after_which_a_partition_is_due() -> None:
    """Storages that start together do not compare the same partitions after the same passes."""

    class Assigned(Peers):
        @override
        async def assigned(self, partitions: Sequence[int]) -> dict[int, frozenset[str]]:
            return dict.fromkeys(partitions, ALL)

    unused: Any = None
    peers = Assigned(unused, unused, unused)

    async def due(offset: int) -> list[tuple[int, ...]]:
        comparison = PeerComparison(Differences(), unused, peers, 1, lambda: 0.0, offset)
        return [await comparison._due((3, 4, 5), passes) for passes in range(3)]

    assert await due(0) == [(3,), (5,), (4,)]
    assert await due(1) == [(5,), (4,), (3,)]
    assert await due(1_700_000_000_000) == [(4,), (3,), (5,)]


@on_virtual_time
async def test_comparison_whose_requests_fail_is_not_repeated_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request counts, also if it fails at once and no storage has read anything."""
    made = model()
    made.append(100)
    for storage in ALL:
        made.update(storage, 0, local_low_water_mark=50)

    class Observed(Peers):
        @override
        async def observe(
            self, partitions: Sequence[int], *, without: Iterable[str] = (), damage: bool = False
        ) -> tuple[ReplicaObservation, StoreParams]:
            unused: Any = None
            return made.observed(), unused

    async def fail(
        _: SumQueries, storages: Iterable[str], __: tuple[int, int]
    ) -> dict[str, RangeSum | str]:
        return dict.fromkeys(storages, "it is down")

    monkeypatch.setattr(SumQueries, "sums", fail)
    unused: Any = None
    clock = asyncio.get_running_loop().time
    peers = Observed(unused, unused, unused)
    comparison = PeerComparison(Differences(), unused, peers, _BURST_BYTES, clock)
    begun = clock()
    for _ in range(2 * _BURST_BYTES // _LEAST_BYTES):
        await comparison._compare(0, 10)
    assert clock() - begun == pytest.approx(1)


@on_virtual_time
async def test_peers_while_zookeeper_does_not_answer_are_unknown_with_the_reason() -> None:
    unused: Any = None

    @asynccontextmanager
    async def open_metadata() -> AsyncIterator[Cluster]:
        await asyncio.Event().wait()
        yield unused

    with pytest.raises(PeersUnknown, match=r"^ZooKeeper: no answer in time$"):
        await Peers(open_metadata, unused, unused).assigned((0,))


# ---- the nodes

OTHER = RecordBatch.of(
    replace(record, data=b"DATA", checksum=as_signed(crc32(b"DATA")))
    if record.transaction_id == 6
    else record
    for record in RECORDS
)
"""`RECORDS` with other data in record 6, all valid."""
SCRUBBING = 4 << 20


async def filled(path: Path, third: RecordBatch) -> World:
    """Return three storages, of which the last one has the records ``third``."""
    made = World(path)
    made.environment = replace(made.environment, pass_seconds=0.01)
    made.unreachable = True
    for each in made.paths:
        async with running(each, made.environment) as node:
            await fill(node, third if each is made.paths[2] else RECORDS)
    return made


async def register(world: World, *nodes: StorageNode) -> tuple[str, ...]:
    """Let the nodes find each other in ZooKeeper; return their names."""
    await world.register(*(("127.0.0.1", node) for node in nodes))
    world.unreachable = False
    return tuple(f"127.0.0.1:{ports(node)[0]}" for node in nodes)


async def test_valid_record_that_differs_is_found_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = await filled(tmp_path, OTHER)
    async with (
        running(world.paths[0], world.environment, scrub_bytes_per_second=SCRUBBING) as own,
        running(world.paths[1], world.environment) as equal,
        running(world.paths[2], world.environment) as other,
    ):
        await eventually(lambda: "comparison: ZooKeeper: no ZooKeeper" in caplog.text)
        assert "partitions compared" not in caplog.text
        names = await register(world, own, equal, other)
        differences = own._differences
        await eventually(lambda: differences.comparisons >= 2)
        majority = ", ".join(sorted(names[:2]))
        text = f"transaction 6 of partition 0 differs on {majority} and on {names[2]}"
        assert caplog.text.count(text) == 1
        assert own._metrics is not None
        gauges = own._metrics.json.bean_form()["gauges"]
        assert gauges["waltz-storage.differing-partitions"]["value"] == {"0": text}
        assert gauges["waltz-storage.compared-bytes"]["value"] > 0
        assert own.directory.partition(0).log.read_batch(0, 99, 1 << 20) == RECORDS
        own.directory.unassign(0, delete_files=True)
        await eventually(lambda: differences.known == {})


async def test_damaged_record_is_a_problem_and_no_difference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = await filled(tmp_path, RECORDS)
    world.damage(2, 6)
    async with (
        running(world.paths[0], world.environment, scrub_bytes_per_second=SCRUBBING) as own,
        running(world.paths[1], world.environment) as equal,
        running(world.paths[2], world.environment) as damaged,
    ):
        names = await register(world, own, equal, damaged)
        await eventually(lambda: own._differences.comparisons >= 1)
        assert own._differences.known == {}
        await eventually(lambda: f"partition 0 on storage {names[2]}: " in caplog.text)
        assert "partition 0 is damaged" in caplog.text


async def test_comparison_that_is_switched_off_asks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = await filled(tmp_path, RECORDS)
    async with running(
        world.paths[0],
        world.environment,
        scrub_bytes_per_second=SCRUBBING,
        scrub_compare=False,
    ):
        await eventually(lambda: "pass 3 is complete" in caplog.text)
    assert world.opened == 0


async def test_unusable_tls_files_leave_the_comparison_for_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = await filled(tmp_path, RECORDS)
    failures: list[BaseException] = []

    async def open_store(*_: object) -> MetadataStore:
        raise TlsConfigError("zookeeper.tls.certificate cannot be read")

    environment = replace(world.environment, open_store=open_store, fail=failures.append)
    async with running(world.paths[0], environment, scrub_bytes_per_second=SCRUBBING):
        await eventually(lambda: caplog.text.count("certificate cannot be read") >= 2)
    assert failures == []
