"""Choose the error that a call of append raises if it has not succeeded. Touches nothing.

`waltz.client.appender` has the calls. `Outcome` and `AppendResult` describe the outcomes.
"""

from __future__ import annotations

from waltz.client.append_call import AppendCall
from waltz.client.core.append_values import AppendResult, Outcome
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.errors import (
    AppendUncertain,
    ClientAhead,
    ClusterUnreachable,
    LockFailed,
    PermissionDenied,
    ServerTooOld,
)
from waltz.client.core.mount import AHEAD_CONFIRMATIONS


def append_error(
    call: AppendCall,
    appends: PartitionAppends | None,
    end_error: Exception | None,
    result: AppendResult | None,
    outcomes: tuple[BatchOutcome | None, ...],
    problems: str = "",
) -> Exception:
    """Return the error for the caller of ``call``, which did not succeed.

    ``appends`` are those of the call's partition, None if the partition was never used.
    ``end_error`` is the error of a closed or failed client, None while the client is open.
    ``result`` is the outcome that causes the error, None if no append has an outcome. ``outcomes``
    has what `append_call.batch_outcome` returned for each append of a batch; it is empty for a
    single append. ``problems`` says which servers are not connected: the text of the error ends
    with it if no server accepted the append.
    """
    if result is not None:
        assert appends is not None, "an append has an outcome, so its partition was used"
        error = _outcome_error(call, appends, end_error, result, outcomes)
        if error is not None:
            return error
    if end_error is not None:
        return end_error
    # The timeout passed while the append waited to be sent for the first time, or to be sent again.
    # It is sent again only after ABSENT or AHEAD, so no earlier attempt is in the log. An attempt
    # is counted before it is sent, so a count of 1 does not show that anything was sent. The first
    # attempt was sent if a second one began, or if it has one of these outcomes.
    assert call.seconds is not None, "without a timeout, the call would still wait"
    was_sent = call.attempts > 1 or (
        result is not None and result.outcome in (Outcome.ABSENT, Outcome.AHEAD)
    )
    state = "the append is not in the log" if was_sent else "nothing was sent"
    return ClusterUnreachable(
        f"partition {call.partition}: no server accepted the append within {call.seconds:g} s; "
        f"{state}: check that servers are running and reachable{problems}"
    )


def is_ahead(call: AppendCall, appends: PartitionAppends) -> bool:
    """Whether the log certainly ends before the mark of the call or of the client.

    One answer is not enough: see `AHEAD_CONFIRMATIONS`. `Mount.log_mark_behind` is set after so
    many answers about the mark of the client. ``call.num_ahead`` counts the outcomes AHEAD of the
    call's own attempts.
    """
    is_client_ahead = appends.mount.log_mark_behind is not None
    return is_client_ahead or call.num_ahead >= AHEAD_CONFIRMATIONS


def _outcome_error(
    call: AppendCall,
    appends: PartitionAppends,
    end_error: Exception | None,
    result: AppendResult,
    outcomes: tuple[BatchOutcome | None, ...],
) -> Exception | None:
    """Return the error that an outcome stands for.

    Return None for UNSENT, ABSENT, and an AHEAD that is not certain (`is_ahead`): the append is not
    in the log, and would be sent again if there were time.
    """
    partition = call.partition
    match result.outcome:
        case Outcome.LOCK_FAILED:
            return LockFailed(partition, result.number)
        case Outcome.AHEAD if is_ahead(call, appends):
            # The server has compared the log with a mark: with the client's mark if it refused the
            # mount, with the call's mark if it refused the append. A call without a mark has that
            # of the client.
            is_client_ahead = appends.mount.log_mark_behind is not None
            mark = appends.mark if is_client_ahead or call.mark is None else call.mark
            return ClientAhead(partition, mark, result.number)
        case Outcome.DENIED:
            return PermissionDenied(partition, appends.denial)
        case Outcome.UNSUPPORTED:
            feature = (
                "batches of appends" if outcomes else "this kind of lock (read or append locks)"
            )
            return ServerTooOld(partition, result.number, feature)
        case Outcome.UNCERTAIN:
            assert result.req_id is not None
            return AppendUncertain(
                partition, result.req_id, _why_uncertain(call, appends, end_error), outcomes
            )
        case _:
            return None


def _why_uncertain(call: AppendCall, appends: PartitionAppends, end_error: Exception | None) -> str:
    """Return, for the text of AppendUncertain, why the outcome is unknown."""
    if call.timed_out:
        return f"no outcome within {call.seconds:g} s"
    if end_error is not None:
        return str(end_error)
    if appends.mount.log_mark_behind is not None:
        return "the log is shorter than before"
    return "the client stopped waiting before the outcome was known"
