"""Who may use a partition, and which marks may be set (disk.md section 9). Pure.

Two session ids count: the persisted one of the control file, and the highest one that any request
has shown since the start, which fences older servers off.
"""

from __future__ import annotations

from waltz_storage.control_format import PartitionInfo
from waltz_storage.errors import NotAssigned, RequestRefused, SessionFenced


def admit(
    partition: int, info: PartitionInfo, highest_session: int, session_id: int, *, offline: bool
) -> None:
    """Check that a request of ``session_id`` may be done; raises RequestRefused.

    ``offline`` requests are those of an offline recovery: they want the partition switched off.
    """
    if not info.assigned:
        raise NotAssigned(partition)
    if offline:
        if info.available:
            raise RequestRefused("cannot run offline recovery while partition is online")
        if session_id != info.session_id:
            raise RequestRefused(
                f"partition last session id has changed to {info.session_id}, "
                f"but request context contains {session_id}"
            )
        return
    if not info.available:
        raise RequestRefused(
            f"read and write for partition={partition} have been disabled on storage node"
        )
    if session_id != highest_session:
        raise SessionFenced(
            f"session id has changed to {highest_session}, but request context contains "
            f"{session_id}"
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
