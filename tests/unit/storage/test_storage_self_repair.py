"""A storage that repairs its damaged records by itself: the plan, and two nodes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from typing_extensions import override

from tests.support.eventually import eventually
from tests.support.replica_model import Model
from tests.support.storage_nodes import RECORDS, World, fill, ports, running
from waltz.admin.core.replicas import ReplicaObservation
from waltz.metadata.store import MetadataStore
from waltz.net import PLAINTEXT, TlsConfigError
from waltz.protocol import ADMIN, admin
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import RecordBatch
from waltz_storage.core.engine.rounds import Reply
from waltz_storage.core.scrub.findings import IdRange
from waltz_storage.core.scrub.listing import listed
from waltz_storage.core.scrub.repair_plan import PeerRepair, next_repair
from waltz_storage.shell import self_repair
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.self_repair import RepairTimes, SelfRepair, _Attempt

A, B, C = "a:1", "b:1", "c:1"
MARK = 50


# ---- the plan


def new_model() -> Model:
    """Partition 0 on A, B and C; their store session began after the record 50."""
    made = Model({A: 0, B: 1, C: 2}, {0: frozenset({A, B, C})})
    made.append(100)
    for each in (A, B, C):
        made.update(each, 0, local_low_water_mark=MARK)
    return made


@pytest.fixture
def model() -> Model:
    return new_model()


def observe(model: Model, **damaged: tuple[int, int]) -> ReplicaObservation:
    """Return the model's observation; ``damaged`` has the range that a storage found damaged."""
    observation = model.observed()
    storages = {
        name: replace(report, damaged=(DamagedRange(0, *damaged[name[0]]),))
        if name[0] in damaged
        else report
        for name, report in observation.storages.items()
    }
    return replace(observation, storages=storages)


def source_of(
    observation: ReplicaObservation, first_id: int, last_id: int, *without: str
) -> tuple[str, int, int] | None:
    """Return the source and the records of the next repair of a range of partition 0."""
    found = next_repair(observation, 0, IdRange(first_id, last_id), frozenset(without))
    if found is None:
        return None
    assert found.damaged.partition == 0
    return found.source, found.damaged.first_id, found.damaged.last_id


def test_repair_takes_no_record_from_a_storage_that_has_it_damaged(model: Model) -> None:
    """The storage that repairs itself is one of A, B and C, and reports its damage, too."""
    assert source_of(observe(model, a=(3, 4)), 3, 4) == (B, 3, 4)
    assert source_of(observe(model, b=(3, 4)), 3, 4) == (A, 3, 4)


def test_repair_takes_the_first_records_from_the_peer_that_has_the_most_of_them(
    model: Model,
) -> None:
    observation = observe(model, a=(3, 9), b=(6, 7), c=(3, 4))
    assert source_of(observation, 3, 9) == (B, 3, 5)
    assert source_of(observation, 6, 9) == (C, 6, 9)
    assert source_of(observe(model, a=(3, 9), b=(6, 7), c=(6, 8)), 6, 9) is None


def test_repair_takes_no_record_above_the_mark_of_the_peer(model: Model) -> None:
    model.update(B, 0, local_low_water_mark=5)
    model.update(C, 0, local_low_water_mark=4)
    assert source_of(observe(model, a=(3, 9)), 3, 9) == (B, 3, 5)


def test_repair_without_a_peer_that_has_failed_takes_the_records_from_another_one(
    model: Model,
) -> None:
    assert source_of(observe(model, a=(3, 4)), 3, 4, B) == (C, 3, 4)
    assert source_of(observe(model, a=(3, 4)), 3, 4, B, C) is None


def test_repair_uses_no_replica_outside_of_the_session(model: Model) -> None:
    model.down.add(B)
    observation = observe(model, a=(3, 3))
    held = observation.storages[C].held
    older = {0: replace(held[0], session_id=held[0].session_id - 1)}
    storages = {**observation.storages, C: replace(observation.storages[C], held=older)}
    assert source_of(replace(observation, storages=storages), 3, 3) is None


class RecordedAttempt(_Attempt):
    """Records the repairs and performs none."""

    def __init__(self, observation: ReplicaObservation) -> None:
        unused: Any = None
        super().__init__(observation, unused, unused, PLAINTEXT, unused)
        self.repairs: list[str] = []

    @override
    async def _replace(self, repair: PeerRepair) -> None:
        self.repairs.append(str(repair))


async def test_attempt_repairs_only_records_up_to_the_own_mark(model: Model) -> None:
    attempt = RecordedAttempt(observe(model, a=(38, 46)))
    await attempt.repair(0, IdRange(38, 44), 40)
    await attempt.repair(0, IdRange(46, 46), 40)
    assert attempt.repairs == ["records 38-40 of partition 0 from storage b:1"]
    assert attempt.obstacles == []
    assert attempt.waiting == [
        f"{records} of partition 0: above the local low-water mark 40; they can be repaired after "
        "the next store session has begun"
        for records in ("records 41-44", "record 46")
    ]


class _GivingPeer:
    """A peer that answers each request at once."""

    async def records(self, _partition: int, first_id: int, _count: int) -> RecordBatch:
        assert first_id == RECORDS.first_id()
        return RECORDS

    async def range_checksum(self, _partition: int, _first_id: int, last_id: int) -> Any:
        return SimpleNamespace(last_id=last_id, checksum=0)


class _SilentLog:
    """A handler of requests to the own log that gives no answer, as if the disk hung."""

    def __init__(self) -> None:
        self.requests: list[admin.Request] = []

    def handle(self, request: admin.Request, _version: int, _reply: Reply) -> None:
        self.requests.append(request)


async def test_own_log_that_does_not_answer_is_named_instead_of_the_peer(
    model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(self_repair, "_ANSWER_SECONDS", 0.01)
    own: Any = _SilentLog()
    peers: Any = SimpleNamespace(tls=PLAINTEXT, network=None)
    peer: Any = _GivingPeer()
    last_id = RECORDS.count - 1
    peers.observe = AsyncMock(return_value=(observe(model, a=(0, last_id)), None))
    scrubber: Any = SimpleNamespace(findings=SimpleNamespace(ranges={0: (IdRange(0, last_id),)}))
    directory: Any = SimpleNamespace(
        states=lambda: [SimpleNamespace(partition=0, local_low_water_mark=MARK)]
    )
    monkeypatch.setattr(_Attempt, "_peer", AsyncMock(return_value=peer))
    await SelfRepair(scrubber, directory, own, peers, RepairTimes())._attempt()
    assert len(own.requests) == 1, "no other peer helps"
    assert caplog.messages == [
        "repair: records stay damaged for now, and the storage tries again later: records "
        f"0-{last_id} of partition 0: this storage has not replaced them in its own log within "
        "0.01 s: check its disk"
    ]


async def test_attempt_takes_the_parts_of_a_range_from_the_peers_that_have_them(
    model: Model,
) -> None:
    attempt = RecordedAttempt(observe(model, a=(3, 9), b=(6, 7), c=(3, 4)))
    await attempt.repair(0, IdRange(3, 9), MARK)
    assert attempt.repairs == [
        "records 3-5 of partition 0 from storage b:1",
        "records 6-9 of partition 0 from storage c:1",
    ]
    assert attempt.obstacles == []


def test_long_list_of_a_log_line_says_how_many_texts_it_leaves_out() -> None:
    assert listed(list("abcdefghij")) == "a; b; c; d; e; f; g; h; i; j"
    assert listed(list("abcdefghijkl")) == "a; b; c; d; e; f; g; h; i; j; 2 more"
    assert listed(list("abcdefghijkl"), ", ") == "a, b, c, d, e, f, g, h, i, j, 2 more"


# ---- the nodes

DAMAGED = 1
"""The number of the directory with the damaged record."""


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for path in made.paths:
        async with running(path, made.environment) as node:
            await fill(node)
    made.damage(DAMAGED, 0)
    return made


async def test_damaged_record_is_repaired_from_the_peer_without_an_administrator(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(world.paths[0], world.environment) as healthy:
        world.unreachable = True
        async with running(
            world.paths[DAMAGED], world.environment, scrub_bytes_per_second=4 << 20
        ) as damaged:
            scrubber = damaged._scrubber
            assert scrubber is not None
            await eventually(lambda: "ZooKeeper: no ZooKeeper server answers" in caplog.text)
            assert scrubber.findings.count == 1
            await world.register(("127.0.0.1", healthy), ("127.0.0.1", damaged))
            world.unreachable = False
            await eventually(lambda: scrubber.findings.repaired == 1)
            assert scrubber.findings.count == 0
            source = f"127.0.0.1:{ports(healthy)[0]}"
            replaced = f"repair: replaced record 0 of partition 0 from storage {source}"
            await eventually(lambda: replaced in caplog.text)
            assert "damaged records: 0; " in caplog.text
            assert "the storage repairs them by itself" in caplog.text
            assert damaged.directory.partition(0).log.read_batch(0, 99, 1 << 20) == RECORDS


async def test_damage_that_a_start_finds_is_repaired(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A start reads the newest records, and all of the segment if one of them is damaged."""
    caplog.set_level(logging.INFO)
    last = RECORDS.count - 1
    world.damage(DAMAGED, last)
    async with running(world.paths[0], world.environment) as healthy:
        world.unreachable = True
        async with running(
            world.paths[DAMAGED], world.environment, scrub_bytes_per_second=4 << 20
        ) as damaged:
            assert f"start: partition 0 has damaged records: 0, {last};" in caplog.text
            await world.register(("127.0.0.1", healthy), ("127.0.0.1", damaged))
            world.unreachable = False
            scrubber = damaged._scrubber
            assert scrubber is not None
            await eventually(lambda: scrubber.findings.repaired == 2)
            assert damaged.directory.partition(0).log.read_batch(0, 99, 1 << 20) == RECORDS
            assert "scrubber: partition 0 has damaged records" not in caplog.text


async def test_peer_that_fails_does_not_stop_the_repair_from_another_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.unreachable = True
    async with (
        running(world.paths[0], world.environment, ADMIN.limited_to(0)) as too_old,
        running(world.paths[2], world.environment) as healthy,
        running(world.paths[DAMAGED], world.environment, scrub_bytes_per_second=4 << 20) as damaged,
    ):
        # Of two peers that have as much, the first by name is asked first.
        first, second = ("127.0.0.1", too_old), ("localhost", healthy)
        await world.register(first, second, ("localhost", damaged))
        world.unreachable = False
        scrubber = damaged._scrubber
        assert scrubber is not None
        await eventually(lambda: scrubber.findings.repaired == 1)
        await eventually(lambda: f"from storage localhost:{ports(healthy)[0]}" in caplog.text)


@pytest.mark.parametrize(
    "request_type",
    [admin.PartitionStatesRequest, admin.RecordListRequest, admin.RangeChecksumRequest],
)
async def test_peer_that_answers_with_another_message_does_not_stop_the_storage(
    world: World,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    request_type: type[admin.Request],
) -> None:
    caplog.set_level(logging.INFO)
    failures: list[BaseException] = []
    wrong_answers: list[admin.Request] = []
    handle = AdminHandler.handle
    world.unreachable = True
    environment = replace(world.environment, fail=failures.append)
    async with (
        running(world.paths[0], world.environment) as wrong,
        running(world.paths[2], world.environment) as healthy,
        running(world.paths[DAMAGED], environment, scrub_bytes_per_second=4 << 20) as damaged,
    ):

        def answer_wrongly(
            self: AdminHandler, request: admin.Request, version: int, reply: Reply
        ) -> None:
            if isinstance(request, request_type) and self._directory is wrong.directory:
                wrong_answers.append(request)
                self._deliver([(reply, admin.AdminSuccessResponse(request.seq_num))])
            else:
                handle(self, request, version, reply)

        monkeypatch.setattr(AdminHandler, "handle", answer_wrongly)
        # Of two peers that have as much, the first by name is asked first.
        await world.register(("127.0.0.1", wrong), ("localhost", healthy), ("localhost", damaged))
        world.unreachable = False
        scrubber = damaged._scrubber
        assert scrubber is not None
        await eventually(lambda: bool(failures) or scrubber.findings.repaired == 1)
        await eventually(lambda: bool(failures or wrong_answers))
        assert failures == []


async def test_repair_that_is_switched_off_leaves_damage_to_the_administrator(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(
        world.paths[DAMAGED],
        world.environment,
        scrub_bytes_per_second=4 << 20,
        scrub_repair=False,
        scrub_compare=False,
    ) as damaged:
        await eventually(lambda: "pass 1 is complete" in caplog.text)
        assert "repair them with waltz storage recover" in caplog.text
        assert len(damaged._background) == 1
    assert world.opened == 0


async def test_record_that_no_peer_can_give_does_not_stop_the_repair_of_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The peers do not know yet that the first record is damaged there, too."""
    caplog.set_level(logging.INFO)
    world.damage(DAMAGED, 5)
    world.damage(0, 0)
    world.damage(2, 0)
    world.unreachable = True
    async with (
        running(world.paths[0], world.environment) as one,
        running(world.paths[2], world.environment) as other,
        running(world.paths[DAMAGED], world.environment, scrub_bytes_per_second=4 << 20) as own,
    ):
        await world.register(*(("127.0.0.1", node) for node in (one, other, own)))
        world.unreachable = False
        scrubber = own._scrubber
        assert scrubber is not None
        await eventually(lambda: scrubber.findings.repaired == 1)
        assert scrubber.findings.ranges == {0: (IdRange(0, 0),)}
        await eventually(lambda: "record 0 of partition 0: from storage 127.0.0.1" in caplog.text)


async def test_unusable_tls_files_leave_damage_for_later_and_the_storage_running(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def open_store(*_: object) -> MetadataStore:
        raise TlsConfigError("zookeeper.tls.certificate cannot be read")

    failures: list[BaseException] = []
    environment = replace(world.environment, open_store=open_store, fail=failures.append)
    async with running(world.paths[DAMAGED], environment, scrub_bytes_per_second=4 << 20):
        await eventually(lambda: caplog.text.count("certificate cannot be read") >= 2)
    assert failures == []
