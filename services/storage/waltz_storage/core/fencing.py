"""Who may use a partition, and which marks may be set (spec/disk.md section 9). Pure.

Two session ids count: the persisted one of the control file, and the highest one that any request
has shown since the start, which fences older servers off.

Two switches count as well. Reading needs the one; the other is needed by everything else, the first
question of a session included: a replica that could vote but not be cut would end every recovery
that it takes part in, while one that stays away leaves the others alone. A server of version 0
knows no half: for it, both must be on.
"""

from __future__ import annotations

from waltz.protocol import storage
from waltz.protocol.admin import Switch
from waltz_storage.core.control_format import PartitionInfo
from waltz_storage.core.errors import NotAssigned, RequestRefused, SessionFenced

_FIRST_WITH_HALVES = 1
_READS = (
    storage.RecordHeaderRequest,
    storage.RecordRequest,
    storage.RecordHeaderListRequest,
    storage.RecordListRequest,
    storage.BoundedRecordListRequest,
    storage.CommittedRecordListRequest,
    storage.StoredRecordListRequest,
)


def raises_fence(request: storage.Request) -> bool:
    """Return whether the request shows a session that fences older ones off."""
    return not isinstance(request, storage.CommittedRecordListRequest)


def admit(
    request: storage.Request, version: int, info: PartitionInfo, highest_session: int
) -> None:
    """Check that a request, made in ``version``, may be done; raises RequestRefused.

    ``highest_session`` is the highest one seen. Requests of an offline recovery want the partition
    switched off; readers that are no servers must name the persisted session.
    """
    partition, session_id = request.partition, request.session_id
    if not info.assigned:
        raise NotAssigned(partition)
    if getattr(request, "offline", False):
        if info.readable or info.writable:
            raise RequestRefused("cannot run offline recovery while partition is online")
        _check_persisted(info, session_id)
        return
    _check_switches(request, version, info)
    if not raises_fence(request):
        _check_persisted(info, session_id)
        return
    if session_id != highest_session:
        raise SessionFenced(
            f"session id has changed to {highest_session}, but request context contains "
            f"{session_id}"
        )


def _check_switches(request: storage.Request, version: int, info: PartitionInfo) -> None:
    if info.available:
        return
    partition = request.partition
    if version < _FIRST_WITH_HALVES or not (info.readable or info.writable):
        raise RequestRefused(
            f"read and write for partition={partition} have been disabled on storage node"
        )
    needed = Switch.READ if isinstance(request, _READS) else Switch.WRITE
    if not info.is_on(needed):
        raise RequestRefused(
            f"{needed.name.lower()} for partition={partition} has been disabled on storage node"
        )


def _check_persisted(info: PartitionInfo, session_id: int) -> None:
    if session_id != info.session_id:
        raise RequestRefused(
            f"partition last session id has changed to {info.session_id}, "
            f"but request context contains {session_id}"
        )


def begin_session(
    info: PartitionInfo, session_id: int, low_water_mark: int, max_id: int
) -> PartitionInfo:
    """Return the info of a session that begins at ``low_water_mark``; raises RequestRefused.

    ``max_id`` is the last id of the log here: it becomes the local mark, and may be below the mark
    while this replica lags behind.
    """
    if max_id > low_water_mark:
        raise RequestRefused("low-water mark is lower than the max transaction id")
    if session_id < info.session_id:
        raise RequestRefused(
            f"unable to set session id to value {session_id} because it's less than current "
            f"session id {info.session_id}"
        )
    if low_water_mark < info.low_water_mark:
        raise RequestRefused(
            f"unable to set low watermark to value {low_water_mark} because it's less than "
            f"current low watermark {info.low_water_mark}"
        )
    if max_id < info.local_low_water_mark:
        raise RequestRefused(
            f"unable to set local low watermark to value {max_id} because it's less than current "
            f"local low watermark {info.local_low_water_mark}"
        )
    return PartitionInfo(session_id, low_water_mark, max_id, info.flags)
