"""Generate storage-ops.json: requests to one storage, with each answer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.inline_engine import InlineEngine
from tests.vectors.generate.control_file import control_fields
from tests.vectors.generate.wire_examples import KEY
from tests.vectors.storage_steps import admin_request_of, infos_of, plain_answer, request_of
from waltz.protocol import admin, checksum
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

_PARTITIONS = 3
_THRESHOLD = 200
CREATED_MS = 1_700_000_000_000


def _record(transaction_id: int, partition: int = 0, *, wrong_checksum: bool = False) -> Any:
    data = b"entry %d" % transaction_id
    return {
        "transactionId": transaction_id,
        "reqId": [7, 3, partition, transaction_id],
        "header": 5,
        "data_hex": data.hex(),
        "checksum": checksum(data) ^ wrong_checksum,
    }


def _ask(note: str, request: str, session: int, **fields: Any) -> dict[str, Any]:
    partition, offline = fields.pop("partition", 0), fields.pop("offline", False)
    ask = {"request": request, "sessionId": session, "partitionId": partition}
    return {"note": note, "ask": ask | {"usedByOfflineRecovery": offline} | fields}


def _mark(note: str, session: int, mark: int, **fields: Any) -> dict[str, Any]:
    return _ask(note, "SetLowWaterMarkRequest", session, lowWaterMark=mark, **fields)


def _max(note: str, session: int, **fields: Any) -> dict[str, Any]:
    return _ask(note, "MaxTransactionIdRequest", session, **fields)


def _append(note: str, session: int, *ids: int, **fields: Any) -> dict[str, Any]:
    return _ask(note, "AppendRequest", session, records=[_record(n) for n in ids], **fields)


def _list(note: str, request: str, first: int, most: int) -> dict[str, Any]:
    return _ask(note, request, 4, transactionId=first, maxNumRecords=most)


def _single(note: str, request: str, wanted: int, session: int = 4) -> dict[str, Any]:
    return _ask(note, request, session, transactionId=wanted)


def _admin(note: str) -> dict[str, Any]:
    return {"note": note, "admin": True}


_WRONG = {"records": [_record(5, wrong_checksum=True)]}

_STEPS: tuple[dict[str, Any], ...] = (
    _max("before the assignment", 4),
    _admin("assign 0"),
    _ask("new partition", "LastSessionInfoRequest", 4),
    _max("empty log", 4),
    _max("session 3 after session 4: fenced", 3),
    _mark("first session", 4, -1),
    _append("three records", 4, 0, 1, 2),
    _append("wrong id", 4, 7),
    _append("wrong id after two records, which stay", 4, 3, 4, 9),
    _max("after the refused append", 4),
    _append("no records", 4),
    _ask("wrong checksum of the data: accepted", "AppendRequest", 4, **_WRONG),
    _single("read that record", "RecordRequest", 5),
    _single("absent record", "RecordRequest", 6),
    _single("negative id", "RecordRequest", -1),
    _single("header", "RecordHeaderRequest", 3),
    _single("absent header", "RecordHeaderRequest", 99),
    _list("list to the end of the log", "RecordListRequest", 4, 10),
    _list("list of headers", "RecordHeaderListRequest", 0, 3),
    _list("list of no records", "RecordListRequest", 0, 0),
    _mark("mark below the last id", 4, 2),
    _mark("mark at the last id", 4, 5),
    _mark("mark above the last id: the replica lags", 4, 50),
    _mark("mark below the mark before", 4, 40),
    _ask("marks", "LastSessionInfoRequest", 4),
    _ask("truncate below the local low-water mark", "TruncateRequest", 4, transactionId=3),
    _mark("mark after that truncation", 5, 60),
    _max("session 4 after session 5: fenced", 4),
    _ask("the persisted session is still 4", "LastSessionInfoRequest", 5),
    _ask("truncate all", "TruncateRequest", 5, transactionId=-1),
    _admin("unavailable 0"),
    _max("not available", 5),
    _max("offline, in-memory session", 5, offline=True),
    _max("offline, persisted session", 4, offline=True),
    _append("offline append", 4, 0, 1, offline=True),
    _admin("available 0"),
    _max("offline request while available", 4, offline=True),
    _single("a read with session 6 raises the fence", "RecordRequest", 0, 6),
    _single("a read with session 5: fenced", "RecordRequest", 0, 5),
    _ask("an answer sent as a request", "SuccessResponse", 6),
    _admin("assign 0 again"),
    _admin("assign 1"),
    _admin("available 0 with an unknown partition"),
    _admin("unassign 2, never assigned"),
    _admin("unassign 0, keep files"),
    _max("after the assignment is removed", 6),
    _admin("assign 0, files are adopted"),
    _ask("session info after the new assignment", "LastSessionInfoRequest", 0),
    _max("adopted records", 0),
    _admin("unassign 0, delete files"),
    {"note": "files of partition 0 after deletion", "files": None},
)


def storage_ops() -> dict[str, Any]:
    """Return storage-ops.json."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        options = LogOptions(lambda: CREATED_MS, segment_threshold=_THRESHOLD)
        directory = StorageDirectory(PosixDisk(path), UUID(KEY), _PARTITIONS, options)
        steps = list(_run(InlineEngine(directory), path))
        directory.close()
        control = control_fields((path / CONTROL_FILE).read_bytes())
    return {
        "key": KEY,
        "numPartitions": _PARTITIONS,
        "segmentSizeThreshold": _THRESHOLD,
        "steps": steps,
        "finalControl": control,
    }


def _run(node: InlineEngine, path: Path) -> Iterator[dict[str, Any]]:
    for seq_num, step in enumerate(_STEPS):
        if step.get("admin"):
            answer = node.administer(admin_request_of(step["note"]))
            done = isinstance(answer, admin.AdminSuccessResponse)
            infos = infos_of(node.directory)
            yield step | {
                "result": "ok" if done else "connection closed",
                "partitionInfos_id_session_lwm_locallwm_assigned_available": infos,
            }
        elif "files" in step:
            yield step | {"files": sorted(file.name for file in (path / "0").iterdir())}
        else:
            ask = step["ask"] | {"seqNum": seq_num}
            answer = plain_answer(node.ask(request_of(ask)))
            yield {"note": step["note"], "ask": ask, "answer": answer}
