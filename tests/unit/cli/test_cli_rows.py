"""Test results about clusters, storages and transactions, whose JSON keys must not change."""

from __future__ import annotations

import uuid

from waltz.admin import Check, Finding, HeldPartition, ServerReport
from waltz.cli import transactions
from waltz.cli.cluster import rows as cluster_rows
from waltz.cli.storage import rows as storage_rows
from waltz.cli.storage.rows import Holdings
from waltz.client import Transaction
from waltz.metadata.core.formats import (
    UNRESOLVED,
    ClusterParams,
    OwnedPartition,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaState,
    ServerDescriptor,
    StoreParams,
)
from waltz.metadata.core.membership_steps import Member, Membership
from waltz.metadata.core.storage_maps import StorageMaps, assign_everything
from waltz.protocol import ReqId
from waltz.protocol.damaged_ranges import DamagedRange

KEY = uuid.UUID(int=7)
MAPS = assign_everything({"a:1": 0, "b:1": 1}, {"a:1": 11, "b:1": 12}, 2)


def test_cluster_shows_servers_storages_and_partitions() -> None:
    member = Member("s_0", 1, ServerDescriptor(3, "host", 99, (1,)))
    assignment = PartitionAssignment(1, 2, {3: (OwnedPartition(1, 4), OwnedPartition(0, 2))})
    replicas = {"a:1": ReplicaState(5, UNRESOLVED), "b:1": ReplicaState(4, 17)}
    shown = cluster_rows.render_cluster(
        "/waltz",
        ClusterParams("orders", 2),
        StoreParams(KEY, 2),
        Membership(assignment, 8, 1, (member,)),
        MAPS,
        {0: PartitionMetadata(2, 5, replicas)},
    )
    assert shown.value == {
        "name": "orders",
        "root": "/waltz",
        "key": str(KEY),
        "num_partitions": 2,
        "servers": [{"id": 3, "endpoint": "host:99", "preferred": [1], "partitions": [0, 1]}],
        "storages": [
            {"storage": "a:1", "group": 0, "admin_port": 11, "assigned": [0, 1]},
            {"storage": "b:1", "group": 1, "admin_port": 12, "assigned": [0, 1]},
        ],
        "partitions": [
            {
                "partition": 0,
                "server": 3,
                "generation": 2,
                "session": 5,
                "replicas": [
                    {"storage": "a:1", "session": 5, "closing_mark": None},
                    {"storage": "b:1", "session": 4, "closing_mark": 17},
                ],
            },
            {
                "partition": 1,
                "server": 3,
                "generation": 4,
                "session": None,
                "replicas": [
                    {"storage": "a:1", "session": None, "closing_mark": None},
                    {"storage": "b:1", "session": None, "closing_mark": None},
                ],
            },
        ],
    }
    assert [list(row) for row in shown.tables[-1].cells] == [
        [0, 3, 2, 5, "1 of 2"],
        [1, 3, 4, "-", "0 of 2"],
    ]


def test_storages_show_what_they_hold() -> None:
    held = HeldPartition(
        partition=1,
        session_id=4,
        low_water_mark=9,
        local_low_water_mark=8,
        max_transaction_id=12,
        size_bytes=None,
        readable=True,
        writable=False,
    )
    damaged = (DamagedRange(1, 3, 4), DamagedRange(1, 7, 7), DamagedRange(2, 0, 9))
    holdings = {"a:1": Holdings((held,), damaged=damaged), "b:1": Holdings(problem="gone")}
    shown = storage_rows.render_storages(MAPS, holdings)
    assert shown.value[0] == {
        "storage": "a:1",
        "group": 0,
        "admin_port": 11,
        "assigned": [0, 1],
        "partitions": [
            {
                "partition": 1,
                "available": False,
                "readable": True,
                "writable": False,
                "session": 4,
                "low_water_mark": 9,
                "local_low_water_mark": 8,
                "max_transaction_id": 12,
                "size_bytes": None,
                "damaged_records": 3,
            }
        ],
        "problem": None,
    }
    assert shown.value[1]["problem"] == "gone"
    assert list(shown.tables[1].cells[0]) == ["a:1", 1, "yes", "no", 4, 9, 8, 12, "-", 3]


def test_storage_known_by_one_map_is_shown() -> None:
    half = StorageMaps(MAPS.groups, StorageMaps.empty().connections, MAPS.assignments)
    unheard = Holdings(problem="unknown")
    shown = storage_rows.render_storages(half, {"a:1": unheard, "b:1": unheard})
    assert [each["admin_port"] for each in shown.value] == [None, None]


def test_connectivity_lists_storages_of_each_server() -> None:
    members = {3: ServerDescriptor(3, "s", 30), 4: ServerDescriptor(4, "s", 40)}
    answers = {
        3: ServerReport(storages={"b:1": False, "a:1": True}),
        4: ServerReport(problem="gone"),
    }
    shown = cluster_rows.render_connectivity(members, answers)
    assert [(e["endpoint"], e["storage"], e["reached"], e["problem"]) for e in shown.value] == [
        ("s:30", "a:1", True, None),
        ("s:30", "b:1", False, None),
        ("s:40", None, False, "gone"),
    ]


def test_failed_check_is_in_matrix_and_list() -> None:
    findings = [Finding(0, check) for check in Check]
    findings[4] = Finding(0, Check.QUORUM, ("too few", "far too few"))
    shown = cluster_rows.render_checks(findings)
    assert not shown.value["passed"]
    assert shown.value["findings"][4] == {
        "partition": 0,
        "check": "PARTITION_QUORUM_STATUS",
        "passed": False,
        "problem": "too few; far too few",
        "problems": ["too few", "far too few"],
    }
    matrix, problems = shown.tables
    assert list(matrix.cells[0]).count("FAILED") == 1
    assert [list(row) for row in problems.cells] == [[0, "quorum", "too few; far too few"]]
    assert cluster_rows.render_checks([Finding(0, check) for check in Check]).value["passed"]


def test_transaction_is_shown_as_value_and_line() -> None:
    transaction = Transaction(2, 17, ReqId(5, 3, 2, 9), 4, "grün".encode())
    assert transactions.as_value(transaction) == {
        "partition": 2,
        "id": 17,
        "client_id": 5,
        "generation": 3,
        "seq": 9,
        "header": 4,
        "data": "grün",
        "data_base64": "Z3LDvG4=",
    }
    assert transactions.as_line(transaction).split() == ["2/17", "client", "5", "4", "grün"]


def test_binary_data_is_shown_on_one_line() -> None:
    binary = Transaction(0, 0, ReqId(1, 1, 0, 1), 0, b"\xff\n\x00")
    shown = transactions.as_value(binary)
    assert (shown["data"], shown["data_base64"]) == (None, "/woA")
    assert transactions.as_line(binary).endswith(r"b'\xff\n\x00'")
    lines = Transaction(0, 0, ReqId(1, 1, 0, 1), 0, b"a\nb")
    assert transactions.as_line(lines).endswith(r"'a\nb'")
