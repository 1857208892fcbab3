"""Appends that outlive their store session: what became of them is in the log. Pure.

A broken session leaves behind what it had sent and nobody had acknowledged for a quorum. The next
session resolves the mark, and the mark says which of them were committed - unless another server
wrote in between: then only the log's records can tell.
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
class Carried:
    """What a session of ``generation`` sent: ids from ``first_id`` on, fate unknown."""

    generation: int = -1
    first_id: int = 0
    appends: list[Append] = field(default_factory=list)


def fates(carried: Carried, queue: deque[Append], mark: int) -> list[Outcome]:
    """Return what became of the appends, if the same writer's next session opened at ``mark``.

    If a batch was cut in two, and what was sent of it failed, the rest of it fails, too, and is
    taken out of the queue: what gets into the log of a batch is a prefix of it.
    """
    done = max(0, mark + 1 - carried.first_id)
    assert done <= len(carried.appends), "the log grew by what this server never sent"
    known: list[Outcome] = []
    if done:
        appends = carried.appends[:done]
        known.append(
            AppendsCommitted(carried.first_id, appends, records_of(carried.first_id, appends))
        )
    failed = carried.appends[done:]
    if failed:
        batch = failed[-1].batch
        while batch is not None and queue and queue[0].batch == batch:
            failed.append(queue.popleft())
        known.append(AppendsFailed(failed))
    return known


def give_up(carried: Carried, queue: deque[Append], generation: int) -> list[Outcome]:
    """Give up what belongs to generations before ``generation``; takes it out of the queue, too."""
    known: list[Outcome] = []
    if carried.appends:
        known.append(AppendsUnresolved(carried.appends))
    stale = [append for append in queue if append.generation != generation]
    if stale:
        fresh = [append for append in queue if append.generation == generation]
        queue.clear()
        queue.extend(fresh)
        known.append(AppendsFailed(stale))
    return known
