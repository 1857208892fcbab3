"""One call of append, and how each of its appends ended. Waits on the event loop, no more.

An end is noted when it is known, not when the caller is waked for it: in between, in the same turn
of the loop, the caller's time may run out, and what he is told must be true then too.
"""

from __future__ import annotations

import asyncio

from waltz.client.core.appends import Outcome, Settled
from waltz.client.core.batches import Absent, Appended, BatchOutcome, Refused


class AppendCall:
    """A call to append to ``partition``: one append, sent again if need be, or a batch.

    It has ``seconds`` (None: no bound); ``late`` says that they have run out. ``attempts`` counts
    how often it began to be sent.
    """

    __slots__ = ("_ended", "_open", "_tickets", "attempts", "late", "partition", "seconds")

    def __init__(self, partition: int, seconds: float | None) -> None:
        self.partition = partition
        self.seconds = seconds
        self.late = False
        self.attempts = 0
        self._tickets: list[Ticket] = []
        self._open = 0
        self._ended: asyncio.Future[None]

    def begin(self, count: int) -> list[Ticket]:
        """Return a ticket for each append that is to be sent now; earlier ones no longer count."""
        assert not self._open, "an append is sent again only when its fate is known"
        self._tickets = [Ticket(self) for _ in range(count)]
        self._open = count
        self.attempts += 1
        self._ended = asyncio.get_running_loop().create_future()
        return self._tickets

    async def ended(self) -> None:
        """Return when every append has ended."""
        await self._ended

    @property
    def unended(self) -> list[Ticket]:
        """The appends that have not ended."""
        return [ticket for ticket in self._tickets if ticket.end is None]

    @property
    def ends(self) -> list[Settled]:
        """How the appends ended, in their order; nothing before the first `begin`."""
        return [ticket.end for ticket in self._tickets if ticket.end is not None]

    def end(self) -> None:
        """One more has ended; wake the caller if it was the last."""
        self._open -= 1
        if not self._open and not self._ended.done():
            self._ended.set_result(None)


class Ticket:
    """One append of a call: the token under which `PartitionAppends` has it."""

    __slots__ = ("_call", "end")

    def __init__(self, call: AppendCall) -> None:
        self._call = call
        self.end: Settled | None = None

    def settle(self, end: Settled) -> None:
        """Note the end; only the first counts, as that is what the caller was told."""
        if self.end is None:
            self.end = end
            self._call.end()


def batch_outcome(end: Settled) -> BatchOutcome | None:
    """Return what the end of an append of a batch means, None if its fate is not known."""
    match end.outcome:
        case Outcome.COMMITTED:
            return Appended(end.number)
        case Outcome.LOCK_FAILED:
            return Refused(end.number)
        case Outcome.ABSENT:
            return Absent()
        case _:
            return None
