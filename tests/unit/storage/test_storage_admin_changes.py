"""Test the texts by which the log describes administrative changes of a storage."""

from __future__ import annotations

import pytest

from waltz.protocol import admin
from waltz.protocol.failures import RpcFailure
from waltz.protocol.records import EMPTY_BATCH, Record, RecordBatch, ReqId
from waltz_storage.core.admin_changes import change_text, outcome_text

RECORDS = RecordBatch.of(Record(n, ReqId(1, 2, 2, n), 0, b"", 0) for n in (7, 8))


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (admin.PartitionAssignmentRequest(1, (0, 2), True, False), "assign partitions 0, 2"),
        (
            admin.PartitionAssignmentRequest(1, (0,), False, False),
            "unassign partitions 0 and keep their files",
        ),
        (
            admin.PartitionAssignmentRequest(1, (0,), False, True),
            "unassign partitions 0 and delete their files",
        ),
        (
            admin.PartitionAvailableRequest(1, (1,), False),
            "switch off reads and writes of partitions 1",
        ),
        (
            admin.PartitionSwitchRequest(1, (1,), admin.Switch.READ, True),
            "switch on reads of partitions 1",
        ),
        (
            admin.PartitionSwitchRequest(1, (), admin.Switch.WRITE, False),
            "switch off writes of no partition",
        ),
        (admin.RepairRecordsRequest(1, 2, 0, RECORDS), "repair records 7-8 of partition 2"),
        (admin.RepairRecordsRequest(1, 2, 0, EMPTY_BATCH), "repair no record of partition 2"),
        (admin.MetricsRequest(1), None),
        (admin.LastSessionInfoRequest(1, 0), None),
    ],
)
def test_text_of_an_admin_change_names_what_the_request_changes(
    request_: admin.Message, text: str | None
) -> None:
    assert change_text(request_) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (admin.AdminSuccessResponse(1), "done"),
        (admin.AdminFailureResponse(1, RpcFailure("E: the reason")), "refused: E: the reason"),
        (None, "refused"),
    ],
)
def test_outcome_is_described_by_the_answer(answer: admin.Response | None, text: str) -> None:
    assert outcome_text(answer) == text
