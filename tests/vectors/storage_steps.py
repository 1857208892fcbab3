"""Convert requests and answers of a storage between the form of the vectors and ours."""

from __future__ import annotations

from typing import Any

from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz_storage.core.partitions.storage_directory import StorageDirectory

Step = dict[str, Any]


def request_of(ask: Step) -> Any:
    """Return the request of a step."""
    context = (ask["sessionId"], ask["seqNum"], ask["partitionId"])
    offline = ask["usedByOfflineRecovery"]
    match ask["request"]:
        case "LastSessionInfoRequest":
            return storage.LastSessionInfoRequest(*context, offline)
        case "MaxTransactionIdRequest":
            return storage.MaxTransactionIdRequest(*context, offline)
        case "SetLowWaterMarkRequest":
            return storage.SetLowWaterMarkRequest(*context, ask["lowWaterMark"], offline)
        case "TruncateRequest":
            return storage.TruncateRequest(*context, ask["transactionId"], offline)
        case "AppendRequest":
            return storage.AppendRequest(*context, _batch(ask["records"]), offline)
        case "RecordHeaderRequest":
            return storage.RecordHeaderRequest(*context, ask["transactionId"])
        case "RecordRequest":
            return storage.RecordRequest(*context, ask["transactionId"])
        case "RecordHeaderListRequest":
            first, most = ask["transactionId"], ask["maxNumRecords"]
            return storage.RecordHeaderListRequest(*context, first, most)
        case "RecordListRequest":
            first, most = ask["transactionId"], ask["maxNumRecords"]
            return storage.RecordListRequest(*context, first, most)
        case "SuccessResponse":
            return storage.SuccessResponse(*context)
        case other:
            raise AssertionError(f"unknown request {other}")


def record_of(fields: Step) -> Record:
    """Return the record with these fields."""
    return Record(
        fields["transactionId"],
        ReqId(*fields["reqId"]),
        fields["header"],
        bytes.fromhex(fields["data_hex"]),
        fields["checksum"],
    )


def _batch(records: list[Step]) -> RecordBatch:
    return RecordBatch.of(map(record_of, records))


def admin_request_of(note: str) -> Any:
    """Return the action that a note describes, such as ``unassign 2, keep files``."""
    words = note.replace(",", "").split()
    if "unknown" in words:
        return admin.PartitionAvailableRequest(1, (0, 7), True)
    partition = int(next(word for word in words if word.rstrip(":").isdecimal()).rstrip(":"))
    match words[0]:
        case "assign" | "reassign":
            return admin.PartitionAssignmentRequest(1, (partition,), True, False)
        case "unassign":
            delete = "delete" in words
            return admin.PartitionAssignmentRequest(1, (partition,), False, delete)
        case "available" | "unavailable":
            return admin.PartitionAvailableRequest(1, (partition,), words[0] == "available")
        case other:
            raise AssertionError(f"unknown action {other}")


def infos_of(directory: StorageDirectory) -> list[list[Any]]:
    """Return id, session, both marks, and the two flags of each partition."""
    infos = []
    for partition in range(directory.num_partitions):
        info = directory.info(partition)
        marks = [info.session_id, info.low_water_mark, info.local_low_water_mark]
        infos.append([partition, *marks, info.assigned, info.available])
    return infos


def plain_record(record: Record) -> Step:
    """Return the fields of a record."""
    req_id = record.req_id
    return {
        "transactionId": record.transaction_id,
        "reqId": [req_id.client_id, req_id.generation, req_id.partition, req_id.seq],
        "header": record.header,
        "data_hex": bytes(record.data).hex(),
        "checksum": record.checksum,
    }


def plain_answer(answer: Any) -> Step:
    """Return the fields of an answer."""
    if isinstance(answer, storage.FailureResponse):
        message = answer.failure.message or ""
        if message.startswith("java.lang.Exception: Partition:"):
            return {"response": None}
    fields: Step = {
        "response": type(answer).__name__,
        "sessionId": answer.session_id,
        "seqNum": answer.seq_num,
        "partitionId": answer.partition,
    }
    match answer:
        case storage.LastSessionInfoResponse():
            fields["lastSessionId"] = answer.last_session_id
            fields["lowWaterMark"] = answer.low_water_mark
            fields["localLowWaterMark"] = answer.local_low_water_mark
        case storage.MaxTransactionIdResponse():
            fields["transactionId"] = answer.transaction_id
        case storage.FailureResponse():
            fields["message"] = answer.failure.message
        case storage.RecordResponse():
            record = next(iter(answer.record)) if answer.record is not None else None
            fields["record"] = plain_record(record) if record is not None else None
        case storage.RecordHeaderResponse():
            header = answer.header
            fields["recordHeaderTransactionId"] = header.transaction_id if header else None
        case storage.RecordListResponse():
            fields["transactionIds"] = [r.transaction_id for r in answer.records]
        case storage.RecordHeaderListResponse():
            fields["transactionIds"] = [h.transaction_id for h in answer.headers]
    return fields
