"""The console's view of a cluster: states, numbers that are unknown, work under way."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.support.console_world import (
    MAPS,
    NAMES,
    NO_SERVER,
    SILENT,
    held,
    metadata,
    sample,
    storage,
    view,
)
from waltz.admin.core.sample import Sample, ServerSample
from waltz.admin.core.storage_figures import StorageFigures, storage_figures
from waltz.console.core.history import History
from waltz.console.core.view import as_value, failed_view
from waltz.console.core.work import WorkKind
from waltz.metadata.core.formats import PartitionMetadata, ReplicaAssignments, ReplicaState
from waltz.protocol.damaged_ranges import DamagedRange

FILLING = PartitionMetadata(7, 4, {**metadata(0).replicas, "c:1": ReplicaState(4, 30)})
DAMAGED = storage(damaged=(DamagedRange(0, 5, 7),))


def test_view_of_healthy_cluster_has_all_numbers() -> None:
    shown = view(sample(12.0, marks={0: 150, 1: 100}), sample(10.0))
    partition = shown.partitions[0]
    assert (partition.state, partition.server, partition.generation, partition.session) == (
        "open",
        3,
        7,
        4,
    )
    assert (partition.high_water_mark, partition.transactions_per_second) == (150, 25.0)
    assert [(r.state, r.lag) for r in partition.replicas] == [("in session", 50)] * 3
    assert (shown.servers[0].partitions, shown.servers[0].transactions_per_second) == ((0, 1), 25.0)
    first = shown.storages[0]
    assert (first.held, first.greatest_lag, first.log_bytes) == (2, 50, 2_000_000)
    assert (first.disk_free_bytes, first.disk_size_bytes, first.scrub_progress) == (800, 1000, 0.5)
    assert shown.work == ()


def test_silent_storage_has_no_numbers() -> None:
    shown = view(sample(storages={"b:1": SILENT}))
    silent = asdict(shown.storages[1])
    known = {"storage": "b:1", "group": 1, "answers": False, "assigned": (0, 1)}
    assert {name: silent.pop(name) for name in known} == known
    assert silent.pop("problem") == "connection refused"
    assert set(silent.values()) == {None}
    replica = shown.partitions[0].replicas[1]
    assert (replica.state, replica.lag, replica.last_id, replica.damaged_records) == (
        "unknown",
        None,
        None,
        None,
    )
    assert shown.partitions[0].state == "degraded"
    assert shown.totals is not None
    assert (shown.totals.healthy_replicas, shown.totals.unknown_replicas) == (4, 2)


def test_replica_of_a_storage_without_admin_port_has_that_reason() -> None:
    now = sample()
    silent = view(sample(storages={"b:1": SILENT})).partitions[0].replicas[1]
    assert silent.reason == "the storage does not answer"
    portless = replace(now, storages={name: storage() for name in ("a:1", "c:1")})
    partition = view(portless).partitions[0]
    assert (partition.replicas[1].state, partition.replicas[1].reason) == (
        "unknown",
        "ZooKeeper has no admin port of the storage, so its state cannot be read",
    )
    alone = view(replace(now, storages={"a:1": storage()})).partitions[0]
    assert alone.reason == "2 of 3 storages report nothing: a quorum is not certain"


def test_silent_server_has_no_numbers() -> None:
    now = sample(12.0, server=ServerSample(problem="refused"))
    shown = view(now, sample(10.0))
    for partition in shown.partitions:
        assert (partition.state, partition.high_water_mark) == ("unknown", None)
        assert partition.transactions_per_second is None
        assert [replica.lag for replica in partition.replicas] == [None] * 3
    assert shown.servers[0].transactions_per_second is None
    assert [each.greatest_lag for each in shown.storages] == [None] * 3


def test_rate_of_server_is_unknown_if_one_partition_is() -> None:
    now = sample(12.0, marks={0: 150, 1: None})
    assert view(now, sample(10.0)).servers[0].transactions_per_second is None


@pytest.mark.parametrize(
    ("now", "state", "reason"),
    [
        (sample(membership=NO_SERVER), "unavailable", "no server"),
        (replace(sample(), servers={}), "unavailable", "does not run"),
        (sample(server=ServerSample({1: 5}, health={1: True})), "opening", "not acquired"),
        (sample(marks={0: None, 1: 5}), "opening", "opens it"),
        (
            sample(server=ServerSample({0: 5}, health={0: False})),
            "unavailable",
            "no open store session",
        ),
        (sample(storages={"a:1": SILENT, "b:1": SILENT}), "unknown", "2 of 3 storages"),
        (sample(sessions={0: metadata(0, without=("c:1",))}), "degraded", "1 of 3 replicas is not"),
    ],
)
def test_partition_that_is_not_open_has_its_reason(now: Sample, state: str, reason: str) -> None:
    partition = view(now).partitions[0]
    assert partition.state == state
    assert reason in partition.reason


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (sample(storages={"c:1": storage(held(1))}), "not held"),
        (sample(storages={"c:1": storage(held(0, on=False), held(1))}), "switched off"),
        (sample(storages={"c:1": DAMAGED}), "damaged"),
        (sample(storages={"c:1": storage(figures=StorageFigures(refused={0: "x"}))}), "refused"),
        (sample(sessions={0: FILLING}), "being filled"),
        (sample(sessions={0: metadata(0, without=("c:1",))}), "out of session"),
    ],
)
def test_replica_that_is_not_healthy_has_its_state(now: Sample, state: str) -> None:
    assert view(now).partitions[0].replicas[2].state == state


def test_replica_being_filled_is_work_with_progress() -> None:
    stored = storage(held(0, 24), held(1))
    work = view(sample(storages={"c:1": stored}, sessions={0: FILLING})).work
    assert [(w.kind, w.storage, w.done, w.total) for w in work] == [
        (WorkKind.CATCH_UP, "c:1", 25, 101)
    ]


def test_partition_without_session_has_no_catch_up() -> None:
    server = ServerSample({0: 5, 1: 5}, health={0: False, 1: True})
    now = sample(server=server, sessions={0: metadata(0, without=("a:1", "b:1", "c:1"))})
    assert view(now).work == ()


def test_unassigned_replica_in_a_group_is_a_move() -> None:
    groups = replace(MAPS.groups, groups={**MAPS.groups.groups, "d:1": 2})
    now = sample(storages={"d:1": storage(held(0, 49))})
    now = replace(now, maps=replace(MAPS, groups=groups))
    work = view(now).work
    assert [(w.kind, w.storage, w.done, w.total) for w in work] == [(WorkKind.MOVE, "d:1", 50, 101)]
    both = {**MAPS.assignments.partitions, "d:1": (0,)}
    now = replace(now, maps=replace(now.maps, assignments=ReplicaAssignments(both)))
    assert [(w.kind, w.storage, w.done) for w in view(now).work if w.kind is WorkKind.MOVE] == [
        (WorkKind.MOVE, "d:1", None)
    ]


def test_progress_of_a_repair_counts_from_the_most_damage() -> None:
    history = History()
    history.add(sample(1.0, storages={"c:1": DAMAGED}), 1.0)
    now = sample(2.0, storages={"c:1": storage(damaged=(DamagedRange(0, 7, 7),))})
    history.add(now, 2.0)
    work = view(now, history=history).work
    assert [(w.kind, w.storage, w.done, w.total) for w in work] == [(WorkKind.REPAIR, "c:1", 2, 3)]
    history.add(sample(3.0), 3.0)
    assert history.peaks == {}


def test_failed_sample_keeps_values_and_says_why() -> None:
    last = view(sample())
    failed = failed_view(NAMES, last, "ZooKeeper did not answer")
    assert (failed.partitions, failed.at) == (last.partitions, last.at)
    assert failed.problem == "ZooKeeper did not answer"
    assert failed.health.state == "unknown"
    assert failed_view(NAMES, None, "x").totals is None


def test_view_has_a_json_value() -> None:
    history = History()
    history.add(sample(1.0), 1.0)
    history.add(sample(3.0, storages={"a:1": SILENT}), 3.0)
    value = json.loads(json.dumps(as_value(2, view(sample()), history)))
    assert value["partitions"][0]["replicas"][0]["state"] == "in session"
    assert [entry["kind"] for entry in value["timeline"]] == ["storage"]
    assert value["rates"] == [{"at": 3.0, "transactions_per_second": 0.0}]


DISK_FREE = "waltz-storage.disk-free-bytes"


def test_figures_of_old_storage_are_unknown() -> None:
    without: tuple[dict[str, Any], ...] = (
        {"gauges": {}},
        {},
        {"gauges": []},
        {"gauges": {DISK_FREE: 10}},
        {"gauges": {DISK_FREE: {"value": math.nan}}},
        {"gauges": {DISK_FREE: {"value": math.inf}}},
        {"gauges": {DISK_FREE: {"value": 10**400}}},  # No float is so large.
        {"gauges": {"waltz-storage.refused-partitions": {"value": {"a": "torn"}}}},
    )
    for metrics in without:
        assert storage_figures(metrics) == StorageFigures()
    gauges = {
        DISK_FREE: {"value": 10},
        "waltz-storage.scrub-progress": {"value": 1},
        "waltz-storage.refused-partitions": {"value": {"4": {"reason": "torn"}}},
        "waltz-storage.differing-partitions": {"value": {"5": "differs"}},
    }
    assert storage_figures({"gauges": gauges}) == StorageFigures(
        disk_free_bytes=10, scrub_progress=1.0, refused={4: "torn"}, differing={5: "differs"}
    )
