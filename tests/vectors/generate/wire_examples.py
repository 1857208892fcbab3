"""List examples of each form of each message, with the versions that have this form."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from waltz.protocol import checksum

Fields = dict[str, Any]

KEY = "00112233-4455-6677-8899-aabbccddeeff"


def req(client: int = 7, generation: int = 3, partition: int = 2, seq_num: int = 1) -> Fields:
    """Return the fields of a request id."""
    return {
        "clientId": client,
        "generation": generation,
        "partitionId": partition,
        "seqNum": seq_num,
    }


def _data(text: bytes) -> Fields:
    return {"data_hex": text.hex(), "checksum": checksum(text)}


def _record(transaction_id: int, text: bytes) -> Fields:
    return {
        "transactionId": transaction_id,
        "reqId": req(seq_num=transaction_id),
        "header": 5,
        **_data(text),
    }


def _header(transaction_id: int) -> Fields:
    return {"transactionId": transaction_id, "reqId": req(seq_num=transaction_id), "header": 5}


def _stored(transaction_id: int, text: bytes) -> str:
    """Return a record as a segment has it."""
    ids = struct.pack(">qiiiii", transaction_id, 7, 3, 2, transaction_id, 5)
    record = ids + struct.pack(">ii", len(text), checksum(text)) + text
    return (record + struct.pack(">I", zlib.crc32(record))).hex()


def append(**locks: list[int]) -> Fields:
    """Return an append's fields; a version has the kinds of locks that are given."""
    return {
        "clientHighWaterMark": 41,
        **{f"{kind}LockRequest": hashes for kind, hashes in locks.items()},
        "header": 5,
        **_data(b"debit 10"),
    }


def _answers() -> list[Fields]:
    """Return an answer with each outcome that an append on its own can have."""
    outcomes = ((0, 42), (1, 40), (2, -1), (4, 43))
    return [
        {"reqId": req(seq_num=seq), "outcome": kind, "transactionId": number}
        for seq, (kind, number) in enumerate(outcomes, 1)
    ]


_TOOL = {"reqId": req(-1, 0, 0, 0)}
_TOOL_FOR_2 = {"reqId": req(-1, 0, 2, 0)}

CLIENT_SERVER: list[tuple[str, range, Fields]] = [
    ("MountRequest", range(6), {"clientHighWaterMark": 41, "seqNum": 0}),
    ("MountRequest", range(6, 8), {"clientHighWaterMark": 41, "seqNum": 0, "fed": True}),
    ("MountRequest", range(6, 8), {"clientHighWaterMark": 41, "seqNum": 0, "fed": False}),
    ("MountResponse", range(3), {"partitionReady": True, "sourcePartitionState": 0}),
    ("MountResponse", range(3), {"partitionReady": False, "sourcePartitionState": 1}),
    ("MountResponse", range(3), {"partitionReady": False, "sourcePartitionState": 2}),
    *(("MountResponse", range(3, 8), {"partitionState": state}) for state in (0, 1, 2)),
    ("AppendRequest", range(1), append(write=[112, -5])),
    ("AppendRequest", range(1, 2), append(write=[112], read=[-5, 9])),
    ("AppendRequest", range(2, 8), append(write=[112], read=[-5, 9], append=[])),
    ("AppendRequest", range(2, 8), append(write=[], read=[], append=[77])),
    ("FeedRequest", range(8), {"clientHighWaterMark": 42}),
    ("FeedData", range(8), {"transactionId": 42, "header": 5}),
    ("FeedSuspended", range(8), {}),
    ("TransactionDataRequest", range(8), {"transactionId": 42}),
    (
        "TransactionDataResponse",
        range(8),
        {"transactionId": 42, "success": True, **_data(b"debit 10")},
    ),
    (
        "TransactionDataResponse",
        range(8),
        {"transactionId": 42, "success": False, "errorMessage": "partition not ready"},
    ),
    ("FlushRequest", range(8), {}),
    ("FlushResponse", range(8), {"transactionId": 42}),
    ("LockFailure", range(8), {"transactionId": 42}),
    ("HighWaterMarkRequest", range(8), {}),
    ("HighWaterMarkResponse", range(8), {"transactionId": 42}),
    ("HighWaterMarkResponse", range(8), {"transactionId": -(2**63)}),
    ("CheckStorageConnectivityRequest", range(1, 8), _TOOL),
    (
        "CheckStorageConnectivityResponse",
        range(1, 8),
        _TOOL | {"storageConnectivity": [["a.example:55280", True], ["b.example:55280", False]]},
    ),
    ("ServerPartitionsAssignmentRequest", range(2, 8), _TOOL),
    ("ServerPartitionsAssignmentResponse", range(2, 8), _TOOL | {"partitionIds": [0, 2]}),
    ("AddPreferredPartitionRequest", range(2, 8), _TOOL_FOR_2 | {"partitionIds": [2, 3]}),
    ("AddPreferredPartitionResponse", range(2, 8), _TOOL_FOR_2 | {"result": True}),
    ("RemovePreferredPartitionRequest", range(2, 8), _TOOL_FOR_2 | {"partitionIds": [2]}),
    ("RemovePreferredPartitionResponse", range(2, 8), _TOOL_FOR_2 | {"result": False}),
    ("ServerPartitionsHealthStatRequest", range(4, 8), _TOOL),
    (
        "ServerPartitionsHealthStatResponse",
        range(4, 8),
        _TOOL | {"partitionHealth": [[0, True], [2, False]]},
    ),
    (
        "RecordsRequest",
        range(5, 7),
        {"firstTransactionId": 42, "maxNumRecords": 100, "maxBytes": 65536, "waitMs": 500},
    ),
    *(
        (
            "RecordsRequest",
            range(7, 8),
            {
                "firstTransactionId": 42,
                "maxNumRecords": 100,
                "maxBytes": 65536,
                "waitMs": 500,
                "stored": stored,
            },
        )
        for stored in (False, True)
    ),
    (
        "RecordsResponse",
        range(5, 8),
        {"errorMessage": None, "highWaterMark": 42, "records": [_record(42, b"debit 10")]},
    ),
    (
        "RecordsResponse",
        range(5, 8),
        {"errorMessage": "partition not ready", "highWaterMark": -(2**63), "records": []},
    ),
    ("HeadersRequest", range(5, 8), {"firstTransactionId": 41, "maxNumHeaders": 2}),
    (
        "HeadersResponse",
        range(5, 8),
        {"errorMessage": None, "highWaterMark": 42, "recordHeaders": [_header(41), _header(42)]},
    ),
    (
        "AppendBatchRequest",
        range(5, 8),
        {
            "clientHighWaterMark": 41,
            "appends": [
                {
                    "writeLockRequest": [112],
                    "readLockRequest": [],
                    "appendLockRequest": [],
                    "header": 5,
                    **_data(text),
                }
                for text in (b"debit 10", b"")
            ],
        },
    ),
    ("AppendBatchResponse", range(5, 8), {"outcomes": [[0, 42], [1, 40], [2, -1], [3, -1]]}),
    ("AppendBatchResponse", range(6, 8), {"outcomes": [[4, 40], [4, 40]]}),
    ("RequestDenied", range(5, 8), {"errorMessage": "no right"}),
    ("AnsweredAppendRequest", range(6, 8), append(write=[112], read=[-5, 9], append=[77])),
    (
        "AnsweredAppendRequest",
        range(6, 8),
        append(write=[112], read=[], append=[]) | {"clientHighWaterMark": -(2**63)},
    ),
    ("AppendAnswers", range(6, 8), {"highWaterMark": 43, "answers": _answers()}),
    (
        "StoredRecordsResponse",
        range(7, 8),
        {"highWaterMark": 43, "storedRecords": [_stored(42, b"debit 10"), _stored(43, b"")]},
    ),
]

_OFFLINE = {"usedByOfflineRecovery": True}
_ONLINE = {"usedByOfflineRecovery": False}
_FAILURE = {
    "exception": {
        "message": "com.wepay.waltz.storage.exception.StorageException: out of order",
        "stackTrace": [
            {"className": "Log", "methodName": "append", "fileName": "Log.java", "lineNumber": 9},
            {"className": "Log", "methodName": "run", "fileName": None, "lineNumber": -2},
        ],
    }
}
_TWO = [_record(42, b"debit 10"), _record(43, b"")]
_COMMITTED = {
    "firstTransactionId": 42,
    "lastTransactionId": 43,
    "maxNumRecords": 20,
    "maxBytes": 65536,
}

STORAGE: list[tuple[str, range, Fields]] = [
    (
        "OpenRequest",
        range(4),
        {"sessionId": -1, "seqNum": -1, "partitionId": -1, "key": KEY, "numPartitions": 4},
    ),
    ("LastSessionInfoRequest", range(4), _ONLINE),
    (
        "LastSessionInfoResponse",
        range(4),
        {"lastSessionId": 8, "lowWaterMark": 41, "localLowWaterMark": 40},
    ),
    ("SetLowWaterMarkRequest", range(4), {"lowWaterMark": 43, **_ONLINE}),
    ("SetLowWaterMarkRequest", range(4), {"lowWaterMark": 43, **_OFFLINE}),
    ("TruncateRequest", range(4), {"transactionId": 41, **_ONLINE}),
    ("AppendRequest", range(4), {"records": _TWO, **_ONLINE}),
    ("SuccessResponse", range(4), {}),
    ("FailureResponse", range(4), _FAILURE),
    ("FailureResponse", range(4), {"exception": {"message": None, "stackTrace": []}}),
    ("RecordHeaderRequest", range(4), {"transactionId": 42}),
    ("RecordHeaderResponse", range(4), {"recordHeader": _header(42)}),
    ("RecordHeaderResponse", range(4), {"recordHeader": None}),
    ("RecordRequest", range(4), {"transactionId": 42}),
    ("RecordResponse", range(4), {"record": _record(42, b"debit 10")}),
    ("RecordResponse", range(4), {"record": None}),
    ("MaxTransactionIdRequest", range(4), _ONLINE),
    ("MaxTransactionIdResponse", range(4), {"transactionId": 43}),
    ("MaxTransactionIdResponse", range(4), {"transactionId": -1}),
    ("RecordHeaderListRequest", range(4), {"transactionId": 42, "maxNumRecords": 20}),
    ("RecordHeaderListResponse", range(4), {"recordHeaders": [_header(42), _header(43)]}),
    ("RecordListRequest", range(4), {"transactionId": 42, "maxNumRecords": 20}),
    ("RecordListResponse", range(4), {"records": _TWO}),
    (
        "BoundedRecordListRequest",
        range(1, 4),
        {"firstTransactionId": 42, "maxNumRecords": 20, "maxBytes": 65536},
    ),
    ("CommittedRecordListRequest", range(1, 4), _COMMITTED),
    ("StoredRecordListRequest", range(2, 4), _COMMITTED),
    (
        "StoredRecordListResponse",
        range(2, 4),
        {"storedRecords": [_stored(42, b"debit 10"), _stored(43, b"")]},
    ),
    ("TruncateBelowMarkRequest", range(3, 4), {"transactionId": 35, "lowWaterMark": 41}),
]

STORAGE_ADMIN: list[tuple[str, range, Fields]] = [
    ("AdminSuccessResponse", range(4), {}),
    ("AdminFailureResponse", range(4), _FAILURE),
    ("AdminOpenRequest", range(4), {"seqNum": -1, "key": KEY, "numPartitions": 4}),
    ("PartitionAvailableRequest", range(4), {"partitionIds": [0, 2], "toggled": True}),
    (
        "PartitionAssignmentRequest",
        range(4),
        {"partitionIds": [2], "toggled": False, "deleteStorageFiles": True},
    ),
    ("RecordListRequest", range(4), {"partitionId": 2, "transactionId": 42, "maxNumRecords": 20}),
    ("RecordListResponse", range(4), {"partitionId": 2, "records": _TWO}),
    ("LastSessionInfoRequest", range(4), {"partitionId": 2}),
    (
        "LastSessionInfoResponse",
        range(4),
        {"partitionId": 2, "lastSessionId": 8, "lowWaterMark": 41, "localLowWaterMark": 40},
    ),
    ("MetricsRequest", range(4), {}),
    ("MetricsResponse", range(4), {"metricsJson": '{"gauges":{}}'}),
    ("AssignedPartitionStatusRequest", range(4), {}),
    ("AssignedPartitionStatusResponse", range(4), {"partitionStatus": [[0, True], [2, False]]}),
    ("PartitionSwitchRequest", range(1, 4), {"partitionIds": [2], "switch": 1, "on": False}),
    ("PartitionStatesRequest", range(1, 4), {}),
    (
        "PartitionStatesResponse",
        range(1, 4),
        {
            "states": [
                {
                    "partitionId": 2,
                    "sessionId": 8,
                    "lowWaterMark": 41,
                    "localLowWaterMark": 40,
                    "maxTransactionId": 43,
                    "sizeBytes": 4096,
                    "readable": False,
                    "writable": True,
                }
            ]
        },
    ),
    (
        "RangeChecksumRequest",
        range(1, 4),
        {"partitionId": 2, "firstTransactionId": 42, "lastTransactionId": 99},
    ),
    (
        "RangeChecksumResponse",
        range(1, 4),
        {
            "partitionId": 2,
            "firstTransactionId": 42,
            "lastTransactionId": 43,
            "numBytes": 88,
            "checksum": -1123581321,
        },
    ),
    ("DamagedRecordsRequest", range(2, 4), {}),
    (
        "DamagedRecordsResponse",
        range(2, 4),
        {"ranges": [{"partitionId": 2, "firstTransactionId": 42, "lastTransactionId": 43}]},
    ),
    (
        "RepairRecordsRequest",
        range(2, 4),
        {"partitionId": 2, "checksum": -1123581321, "records": _TWO},
    ),
    (
        "PullRecordsRequest",
        range(3, 4),
        {
            "partitionId": 2,
            "sessionId": 7,
            "host": "a.example",
            "adminPort": 55281,
            "firstTransactionId": 42,
            "lastTransactionId": 99,
        },
    ),
    ("PullRecordsResponse", range(3, 4), {"partitionId": 2, "lastTransactionId": 77}),
]
