"""One call of append, and the outcome of each of its appends. Waits on the event loop.

An outcome is recorded as soon as it arrives, before the task of the caller resumes. The caller's
timeout may expire between the two, in the same turn of the event loop. Without this rule an append
that is in the log could raise AppendUncertain (tests/unit/client/test_client_append_deadlines.py).
"""

from __future__ import annotations

import asyncio

from waltz.client.core.append_values import Outcome, Settled
from waltz.client.core.batches import Absent, Appended, BatchOutcome, Refused


class AppendCall:
    """A call that appends to ``partition``: a batch, or one append that is resent if it is absent.

    ``seconds`` is its timeout, None for no timeout. ``late`` is whether the timeout has expired.
    ``attempts`` counts how many times it was sent.
    """

    __slots__ = ("_ended", "_open", "_tokens", "attempts", "late", "partition", "seconds")

    def __init__(self, partition: int, seconds: float | None) -> None:
        self.partition = partition
        self.seconds = seconds
        self.late = False
        self.attempts = 0
        self._tokens: list[AppendToken] = []
        self._open = 0
        self._ended: asyncio.Future[None]

    def begin(self, count: int) -> list[AppendToken]:
        """Return a token for each append to send now; outcomes of earlier tokens are ignored."""
        assert not self._open, "an append is sent again only when it has an outcome"
        self._tokens = [AppendToken(self) for _ in range(count)]
        self._open = count
        self.attempts += 1
        self._ended = asyncio.get_running_loop().create_future()
        return self._tokens

    async def ended(self) -> None:
        """Return when every append has an outcome."""
        await self._ended

    @property
    def without_outcome(self) -> list[AppendToken]:
        """The appends without an outcome."""
        return [token for token in self._tokens if token.settled is None]

    @property
    def outcomes(self) -> list[Settled]:
        """The outcomes of the appends, in their order; none before the first `begin`."""
        return [token.settled for token in self._tokens if token.settled is not None]

    def count_outcome(self) -> None:
        """Count one more outcome; the last one lets `ended` return."""
        self._open -= 1
        if not self._open and not self._ended.done():
            self._ended.set_result(None)


class AppendToken:
    """One append of a call: the token that identifies it to `PartitionAppends`."""

    __slots__ = ("_call", "settled")

    def __init__(self, call: AppendCall) -> None:
        self._call = call
        self.settled: Settled | None = None

    def settle(self, settled: Settled) -> None:
        """Record the outcome; ignore all but the first, because the caller may have used it."""
        if self.settled is None:
            self.settled = settled
            self._call.count_outcome()


def batch_outcome(settled: Settled) -> BatchOutcome | None:
    """Return the outcome of an append of a batch in its public form, None if it is in doubt."""
    match settled.outcome:
        case Outcome.COMMITTED:
            return Appended(settled.number)
        case Outcome.LOCK_FAILED:
            return Refused(settled.number)
        case Outcome.ABSENT:
            return Absent()
        case _:
            return None
