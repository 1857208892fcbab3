"""Pure. Which requests are refused, and which marks a session may set (spec/disk.md section 9).

`PartitionInfo` of `control_format` explains the session id, the marks and the switches.

The *fence* is the highest session id of the control file and of all requests since the partition
was opened. Two kinds of requests do not count: reads of committed records (`raises_fence`), and
requests with an impossible id (`is_possible`). Requests of a lower session are refused: if two
servers each assume that they own the partition, only one may write. Shown by the planted bugs "no
fence" and "an older server that reconnects lowers the fence", and by
`tests/vectors/test_storage_ops`.

An administrator can turn off the read switch or the write switch of a partition. Reads of records
need the read switch. All other requests need the write switch, also the first request of a session,
which changes no file. Otherwise a replica that is switched off for writes could vote, but not be
truncated, and every recovery would fail. Without an answer, the replica counts as absent, and an
absent replica does not disturb the others. Version 0 of the protocol knows one switch: its requests
need both switches to be on (`test_storage_switches`).

A log is cut below its low-water mark only in the cases that `check_truncation` describes.
"""

from __future__ import annotations

from waltz.protocol import storage
from waltz.protocol.admin import Switch
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.errors import NotAssigned, RequestRefused, SessionFenced

MAX_SESSION_JUMP = 1 << 40
"""How far a session id may be above the persisted one. Ids grow by one for each session: even with
a thousand sessions per second, a storage that was absent for 30 years needs no larger jump."""

_SEPARATE_SWITCHES_SINCE = 1
"""The first protocol version that knows the two switches."""
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
    """Whether the request raises the fence to its session id, if that is higher.

    A read of committed records does not raise it. Its sender is a reader, such as a client that
    repeats the session id of a server, and a reader must not end the session of the server that
    writes. StoredRecordListRequest is a subclass of this kind of request.
    """
    return not isinstance(request, storage.CommittedRecordListRequest)


def is_read(request: storage.Request) -> bool:
    """Whether the request only reads records. Appends may overtake it (`core.engine.engine`)."""
    return isinstance(request, _READS)


def is_possible(session_id: int, info: PartitionInfo) -> bool:
    """Whether a server can have this session id; an impossible id must not raise the fence.

    ``info`` is the persisted state of the partition. An impossible id is above the ids of all
    servers. If it raised the fence, all servers would be refused until the storage restarts, and
    for ever once the id is persisted.

    A possible id may be wrong, too: a storage cannot distinguish it from the id of a new server.
    Nevertheless the fence never falls, even when the connection whose request raised it ends.
    Example: the new server, with session 8, has read that this log ends at 100. Its connection is
    lost, but the server has not noticed that yet. If the fence fell to 7, the old server, with
    session 7, could commit an append 101 here. The new server would begin its session without this
    append.
    """
    return session_id - info.session_id <= MAX_SESSION_JUMP


def check_request(
    request: storage.Request, version: int, info: PartitionInfo, highest_session: int
) -> None:
    """Check that a request may be executed; raises RequestRefused.

    ``version`` is the protocol version of the request. ``info`` is the persisted state of the
    partition. ``highest_session`` is the fence. A request that raises the fence has done so before
    this call, so its session is never above the fence.

    Requests of an offline recovery need both switches off, so that no server uses the partition
    meanwhile. They must name the session in the control file, and so must reads of committed
    records: a replica that is not in the reader's session may still hold records that a truncation
    has to remove.
    """
    partition, session_id = request.partition, request.session_id
    if not info.assigned:
        raise NotAssigned(partition)
    # Only the kinds of requests that an offline recovery sends have this field.
    if getattr(request, "offline", False):
        if info.readable or info.writable:
            raise RequestRefused("cannot run offline recovery while partition is online")
        _check_persisted(info, session_id)
        return
    _check_switches(request, version, info)
    if not raises_fence(request):
        _check_persisted(info, session_id)
        return
    if not is_possible(session_id, info):
        raise RequestRefused(
            f"session id {session_id} is impossible: the last session of this replica is "
            f"{info.session_id}"
        )
    if session_id != highest_session:
        raise SessionFenced(
            f"session id has changed to {highest_session}, but request context contains "
            f"{session_id}"
        )


def _check_switches(request: storage.Request, version: int, info: PartitionInfo) -> None:
    """Check that the switches that the request needs are on; raises RequestRefused."""
    if info.available:  # Both switches are on.
        return
    partition = request.partition
    both_are_off = not (info.readable or info.writable)
    if both_are_off or version < _SEPARATE_SWITCHES_SINCE:
        raise RequestRefused(
            f"read and write for partition={partition} have been disabled on storage node"
        )
    needed = Switch.READ if is_read(request) else Switch.WRITE
    if not info.is_on(needed):
        raise RequestRefused(
            f"{needed.name.lower()} for partition={partition} has been disabled on storage node"
        )


def _check_persisted(info: PartitionInfo, session_id: int) -> None:
    """Check that ``session_id`` is the session in the control file; raises RequestRefused."""
    if session_id != info.session_id:
        raise RequestRefused(
            f"partition last session id has changed to {info.session_id}, "
            f"but request context contains {session_id}"
        )


def check_truncation(
    request: storage.TruncateRequest | storage.TruncateBelowMarkRequest,
    version: int,
    info: PartitionInfo,
    max_id: int,
) -> None:
    """Check that the log, which ends at ``max_id``, may be cut; raises RequestRefused.

    Records up to the low-water mark are committed, unless a session that never opened wrote the
    mark. Only a server can know that the session never opened. Such a server sends a
    TruncateBelowMarkRequest, which version 3 introduced, with the mark that the server has read
    from this storage. From version 3 on, any other cut below the mark is refused.

    Versions 0 to 2 have one request for all cuts, so cuts below the mark are executed. There is one
    exception: a cut that removes all records of an intact log is refused. A server would send it
    after the metadata in ZooKeeper were lost. A log is intact if it has records and reaches its
    local low-water mark.
    """
    mark, last_id = info.low_water_mark, request.transaction_id
    if isinstance(request, storage.TruncateBelowMarkRequest):
        if request.low_water_mark != mark:
            raise RequestRefused(
                f"cannot truncate to {last_id}: the low-water mark is {mark}, but the server names "
                f"{request.low_water_mark}"
            )
        return
    is_intact = max_id >= max(0, info.local_low_water_mark)
    empties_intact = last_id < 0 and is_intact
    if last_id < mark and (version >= storage.TRUNCATE_BELOW_MARK_SINCE or empties_intact):
        raise RequestRefused(
            f"cannot truncate to {last_id}: transactions up to the low-water mark {mark} are "
            "committed; the log is unchanged. If the metadata in ZooKeeper are lost, rebuild them "
            "with: waltz cluster rescue"
        )


def begin_session(
    info: PartitionInfo, session_id: int, low_water_mark: int, max_id: int
) -> PartitionInfo:
    """Return the info of a session that begins at ``low_water_mark``; raises RequestRefused.

    ``info`` is the persisted state so far. ``max_id`` is the last id of this log. It becomes the
    new local low-water mark (the *local mark*), which is below the low-water mark if this replica
    lags. Records up to the local mark are *known clean*: a start takes an invalid one among them
    for damage, not for a torn write at the end. The rules, and the failure that each prevents:

    * The log must not end above the low-water mark: records above that mark were never committed,
      and would count as known clean.
    * Session ids never go down: a server that was replaced could end the session of its successor.
    * Marks never go down: committed records would count as not committed.
    * The log must not end below the local mark of the previous session: durable records are lost,
      for example because an old snapshot of the disk was restored. This replica must not vote as if
      it had these records.

    Shown by `tests/vectors/test_storage_ops`, and by the simulator's fault "old snapshot restored".
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
    return PartitionInfo(session_id, low_water_mark, local_low_water_mark=max_id, flags=info.flags)
