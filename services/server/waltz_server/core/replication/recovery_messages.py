"""Convert the steps of a recovery to requests, and the answers of storages to reports. Pure.

The steps are those of `recovery_steps`. A *report* is a call of a method of `SessionRecovery`, such
as `SessionRecovery.measured`.
"""

from __future__ import annotations

import re
from typing import Any, assert_never

from waltz.protocol import storage as st
from waltz_server.core.replication.lost_metadata import older_than_replica
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, Truncate
from waltz_server.core.replication.session_recovery import SessionRecovery

_FENCED = re.compile(r"session id has changed to (\d+), but request context contains")
"""Matches the refusal of a request whose session is older than the storage's *fence*.

The fence is the highest session that has contacted the storage. The number in the text is the
fence."""


def report_info(recovery: SessionRecovery, replica: str, response: Any) -> bool:
    """Report to ``recovery`` the answer of ``replica`` to its first request, and return True.

    A storage may refuse the request because its fence is above this session. Then the metadata with
    which the session began are older than the replica, and ``recovery.contradiction`` is set.
    Return False, and report nothing, if the storage refused the request for a reason that may pass,
    or gave an answer that does not fit the request.
    """
    match response:
        case st.LastSessionInfoResponse(_, _, _, session, low_water_mark, local_mark):
            recovery.introduced(replica, session, low_water_mark, local_mark)
            return True
        case st.FailureResponse(failure=failure):
            fenced = _FENCED.search(failure.message or "")
            fence = int(fenced[1]) if fenced is not None else -1
            if fence > recovery.session_id:
                recovery.contradiction = older_than_replica(replica, fence, recovery.session_id)
                return True
    return False


def request_of(step: Step, session: int, partition: int, copy_bytes: int) -> st.Request:
    """Return the request that performs ``step``; for a copy, the request to the copy's source.

    A copy has at most ``copy_bytes``, but at least one record.
    """
    match step:
        case Measure():
            return st.MaxTransactionIdRequest(session, st.NO_SEQ, partition)
        case Truncate(to, mark):
            if mark is None:
                return st.TruncateRequest(session, st.NO_SEQ, partition, to)
            return st.TruncateBelowMarkRequest(session, st.NO_SEQ, partition, to, mark)
        case Mark(mark):
            return st.SetLowWaterMarkRequest(session, st.NO_SEQ, partition, mark)
        case Copy(_, first, count):
            return st.BoundedRecordListRequest(
                session, st.NO_SEQ, partition, first, count, copy_bytes
            )
        case _:
            assert_never(step)


def report_answer(
    recovery: SessionRecovery, replica: str, request: st.Request, response: st.Response
) -> bool:
    """Report to ``recovery`` that ``replica`` has performed the step of ``request``; return True.

    Return False, and report nothing, if ``response`` does not fit ``request``. The answer to a
    BoundedRecordListRequest, the request of a copy, is not passed to this function: the session
    sends the records in it to the replica in an AppendRequest. The answer to this AppendRequest
    completes the copy.
    """
    match request, response:
        case st.MaxTransactionIdRequest(), st.MaxTransactionIdResponse(transaction_id=max_id):
            recovery.measured(replica, max_id)
        case (
            st.TruncateRequest() | st.TruncateBelowMarkRequest(),
            st.MaxTransactionIdResponse(transaction_id=max_id),
        ):
            recovery.cut(replica, max_id)
        case st.SetLowWaterMarkRequest(), st.SuccessResponse():
            recovery.marked(replica)
        case st.AppendRequest(records=records), st.SuccessResponse():
            recovery.copied(replica, records.first_id() + records.count - 1)
        case _:
            return False
    return True
