"""Build and append a transaction; repeat both while a lock refuses it. Reads the clock.

The functions that mount and append are parameters, so that tests can supply their own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from waltz.client.core.errors import ClusterUnreachable, LockFailed, WaltzError
from waltz.client.core.values import Attempt, DataT, Draft
from waltz.client.deadlines import no_problems

Build = (
    Callable[[Attempt], Draft[DataT] | None] | Callable[[Attempt], Awaitable[Draft[DataT] | None]]
)
"""Returns the draft to append in this attempt, None if there is nothing to append."""

_DELAY_SECONDS = 0.05
"""The pause in seconds before an attempt that would have the mark of the previous attempt.

`_next_attempt` has the reason."""

_CHECK_SERVERS = "check that servers are running and reachable"

MountPartition = Callable[[], Awaitable[int]]
"""Mounts the partition and returns the largest id that the client knows to be in its log."""

AppendDraft = Callable[[Draft[DataT], int, float | None], Awaitable[int]]
"""Appends a draft with a mark and a timeout in seconds (None: no timeout); returns the id."""


async def submit(
    partition: int,
    build: Build[DataT],
    mount: MountPartition,
    append: AppendDraft[DataT],
    seconds: float | None,
    problems: Callable[[], str] = no_problems,
) -> int | None:
    """Append what ``build`` returns; see `waltz.LogClient.submit`.

    All attempts together take ``seconds`` at most (None: no limit). The text of the error of a
    timeout ends with what ``problems`` returns.
    """
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    attempt: Attempt | None = None
    conflict: int | None = None
    while True:
        what_was_late, remedy = f"partition {partition} was not mounted", _CHECK_SERVERS
        bound = asyncio.timeout_at(deadline)
        try:
            async with bound:
                attempt = await _next_attempt(partition, mount, attempt, conflict)
                what_was_late, remedy = "build did not return", "make build faster"
                draft = await call_build(build, attempt)
        except TimeoutError:
            if not bound.expired():
                raise  # An error of `mount` or `build`, not of `bound`.
            raise _late_error(partition, conflict, what_was_late, remedy, problems()) from None
        if draft is None:
            return None
        seconds_left = None if deadline is None else deadline - loop.time()
        if seconds_left is not None and seconds_left <= 0:
            # A ``build`` that does not wait cannot be interrupted: it has returned too late.
            raise _late_error(partition, conflict, what_was_late, remedy, problems())
        try:
            mark = attempt.mark if draft.mark is None else draft.mark
            return await append(draft, mark, seconds_left)
        except LockFailed as failed:
            conflict = failed.transaction_id


async def _next_attempt(
    partition: int, mount: MountPartition, previous: Attempt | None, conflict: int | None
) -> Attempt:
    """Mount the partition, and return the attempt after ``previous`` (None: the first one).

    ``conflict`` is the transaction because of which the previous attempt was refused.
    """
    mark = await mount()
    if previous is None:
        return Attempt(partition, 1, mark)
    if mark == previous.mark:
        # The client does not know of the conflicting transaction yet, so an attempt with this mark
        # would be refused again.
        await asyncio.sleep(_DELAY_SECONDS)
        mark = await mount()
    return Attempt(partition, previous.number + 1, mark, conflict)


async def call_build(build: Build[DataT], attempt: Attempt) -> Draft[DataT] | None:
    """Return the draft that ``build`` returns for ``attempt``. Raises TypeError for other types."""
    draft = build(attempt)
    if inspect.isawaitable(draft):
        draft = await draft
    if draft is not None and not isinstance(draft, Draft):
        raise TypeError(
            f"build returned {type(draft).__name__}: it must return a waltz.Draft, or None if "
            "there is nothing to append"
        )
    return draft


def _late_error(
    partition: int, conflict: int | None, what_was_late: str, remedy: str, problems: str
) -> WaltzError:
    """Return the error of a timeout that passed while no append was in progress.

    After a conflict it is LockFailed, otherwise ClusterUnreachable.
    """
    if conflict is not None:
        return LockFailed(partition, conflict)
    return ClusterUnreachable(
        f"{what_was_late} within the timeout of submit; nothing was sent: {remedy}, or raise the "
        f"timeout{problems}"
    )
