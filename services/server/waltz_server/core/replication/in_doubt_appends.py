"""Find the outcomes of appends whose session ended before a quorum acknowledged them. Pure.

Such appends are *in doubt* until the next store session opens. Then `store_partition` calls
`outcomes`.

If the next session is of the same generation, no other server has written in between. Then the mark
of the next session shows which appends are committed. The server never sends an append in doubt
again: if a quorum already has the append, it would be in the log twice.

If another server wrote in between, the mark shows nothing about the appends. The clients look for
their appends in the records of the log (transcripts/clients/batches_and_faults.txt).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from waltz_server.core.appends.append import Append
from waltz_server.core.replication.log_tail import records_of
from waltz_server.core.store_reports import (
    AppendsCommitted,
    AppendsFailed,
    AppendsUnresolved,
    Outcome,
)


@dataclass(frozen=True, slots=True)
class InDoubtAppends:
    """The appends in doubt after a session of ``generation``; their ids begin at ``first_id``.

    By default, no append is in doubt.
    """

    generation: int = -1
    first_id: int = 0
    appends: list[Append] = field(default_factory=list)


def outcomes(
    in_doubt: InDoubtAppends, queue: deque[Append], generation: int, mark: int
) -> list[Outcome]:
    """Return the outcomes, now that a session of ``generation`` has opened at ``mark``.

    ``queue`` has the appends that were not sent. Those that fail are removed from ``queue``.
    """
    if in_doubt.generation == generation:
        return _outcomes_at(in_doubt, queue, mark)
    # Another server may have written since, so the mark shows nothing about these appends. Or no
    # append is in doubt (generation -1, the default), and only those in ``queue`` can be stale.
    return _outcomes_of_stale(in_doubt, queue, generation)


def _outcomes_at(in_doubt: InDoubtAppends, queue: deque[Append], mark: int) -> list[Outcome]:
    """Resolve the appends by the mark of the next session, which has the same generation.

    A client's batch may have been split: a part was sent, the other part is in ``queue``. If the
    last append of the sent part fails, the other part fails, too, because only a prefix of a batch
    may be in the log. See `test_server_batch_histories`.
    """
    num_committed = max(0, mark + 1 - in_doubt.first_id)
    assert num_committed <= len(in_doubt.appends), "the log has records that were not sent"
    reports: list[Outcome] = []
    if num_committed:
        appends = in_doubt.appends[:num_committed]
        records = records_of(in_doubt.first_id, appends)
        reports.append(AppendsCommitted(in_doubt.first_id, appends, records))
    failed = in_doubt.appends[num_committed:]
    if failed:
        batch = failed[-1].batch  # The request id of the client's batch, None for a single append.
        while batch is not None and queue and queue[0].batch == batch:
            failed.append(queue.popleft())
        reports.append(AppendsFailed(failed))
    return reports


def _outcomes_of_stale(
    in_doubt: InDoubtAppends, queue: deque[Append], generation: int
) -> list[Outcome]:
    """Give up the appends of generations before ``generation``.

    Appends that were sent are unresolved, because another server may have committed them. Appends
    that were not sent have failed. This server must not send them later: their clients do not find
    them in the log of the new generation and send them again, so they would be in the log twice.
    """
    reports: list[Outcome] = []
    if in_doubt.appends:
        reports.append(AppendsUnresolved(in_doubt.appends))
    stale = [append for append in queue if append.generation != generation]
    if stale:
        fresh = [append for append in queue if append.generation == generation]
        queue.clear()
        queue.extend(fresh)
        reports.append(AppendsFailed(stale))
    return reports
