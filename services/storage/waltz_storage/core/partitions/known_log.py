"""Pure. Decide what is known about a partition's log before its files are opened."""

from __future__ import annotations

from waltz.protocol.records import NO_TRANSACTION
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.log.flushed_end import FlushedEnd, KnownLog


def known_log(info: PartitionInfo, flushed: FlushedEnd | None) -> KnownLog:
    """Return what the control entry ``info`` and the flushed mark show about the log.

    Nothing is known about a partition that is not assigned: the files in its directory may be of an
    earlier assignment. An assigned partition that has a mark of any kind, or has taken part in a
    session, has had files: its directory is made before it is assigned.
    """
    if not info.assigned:
        return KnownLog()
    has_files = flushed is not None or max(info.session_id, info.low_water_mark) > NO_TRANSACTION
    return KnownLog(info.local_low_water_mark, flushed, has_files)
