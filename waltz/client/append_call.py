"""One call of append, and the outcome of each of its appends. Waits on the event loop.

An outcome is noted as soon as it is known, not when the caller is woken for it. In between, in the
same turn of the event loop, the time of the caller may run out. Without this rule an append that is
in the log could raise AppendUncertain (tests/unit/test_client_append_deadlines.py).
"""

from __future__ import annotations

import asyncio

from waltz.client.core.append_values import Outcome, Settled
from waltz.client.core.batches import Absent, Appended, BatchOutcome, Refused


class AppendCall:
    """A call that appends to ``partition``: one append, sent again if it is absent, or a batch.

    ``seconds`` is its timeout (None: none), ``late`` whether the timeout has passed. ``attempts``
    counts how often it was sent.
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
        """Return a token for each append to send now; earlier tokens no longer count."""
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
        """Count one more outcome, and wake the caller if it was the last."""
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
        """Note the outcome; only the first counts, because the caller has acted on it."""
        if self.settled is None:
            self.settled = settled
            self._call.count_outcome()


def batch_outcome(settled: Settled) -> BatchOutcome | None:
    """Return the outcome of an append of a batch as the API has it, None if it is in doubt."""
    match settled.outcome:
        case Outcome.COMMITTED:
            return Appended(settled.number)
        case Outcome.LOCK_FAILED:
            return Refused(settled.number)
        case Outcome.ABSENT:
            return Absent()
        case _:
            return None
