"""Pure. Decide what is known about a partition's log before its files are opened."""

from __future__ import annotations

from waltz.protocol.records import NO_TRANSACTION
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.log.flushed_end import FlushedEnd, KnownLog

_NO_SESSION = -1
"""The session id of a partition that has taken part in no session."""


def known_log(info: PartitionInfo, flushed: FlushedEnd | None) -> KnownLog:
    """Return what the control entry ``info`` and the flushed mark show about the log.

    ``flushed`` is None if the mark is not known. Nothing is known about a partition that is not
    assigned: the files in its directory may be of an earlier assignment. An assigned partition has
    had files if it has a flushed mark or a low-water mark, or has taken part in a session: none of
    these exists before its files.
    """
    if not info.assigned:
        return KnownLog()
    in_session = info.session_id > _NO_SESSION
    had_files = flushed is not None or in_session or info.low_water_mark > NO_TRANSACTION
    return KnownLog(info.local_low_water_mark, flushed, had_files)
