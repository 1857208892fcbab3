"""One call of append, and the outcome of each of its appends. Waits on the event loop.

An outcome is recorded as soon as it arrives, not when the task of the caller resumes. The timeout
of the call may expire between these two moments. If the outcome were recorded later, a call whose
append is known to be in the log could raise AppendUncertain
(tests/unit/client/test_client_append_deadlines.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from waltz.client.core.append_values import AppendResult, Outcome
from waltz.client.core.batches import Absent, Appended, BatchOutcome, Refused
from waltz.client.in_flight import InFlightLimit
from waltz.protocol.records import ReqId


class AppendCall:
    """A call that appends to ``partition``: one append, or a batch.

    ``mark`` is the last transaction that the caller's decision takes into account, None if the
    caller has named none. ``seconds`` is the timeout of the call (None: no timeout), and
    ``timed_out`` tells whether it has passed.

    The appends may be sent several times. Each time is an *attempt*, which begins with `begin`, and
    ``attempts`` counts them. After the outcome ABSENT, a single append is sent again. A batch is
    not, because others of its appends may be in the log: the caller gets `Absent` for each append
    that is not. The outcome AHEAD says that the log ends before the mark. A server that has just
    lost the partition may give this answer wrongly. So after AHEAD, a batch is sent again, too,
    until ``num_ahead``, which counts these outcomes, is high enough (`append_errors.is_ahead`).
    """

    __slots__ = (
        "_all_settled", "_num_open", "_tokens", "attempts", "mark", "num_ahead", "partition",
        "seconds", "timed_out",
    )  # fmt: skip

    def __init__(self, partition: int, seconds: float | None, mark: int | None) -> None:
        self.mark = mark
        self.partition = partition
        self.seconds = seconds
        self.timed_out = False
        self.attempts = 0
        self.num_ahead = 0
        self._tokens: list[AppendToken] = []
        self._num_open = 0
        """How many appends of the present attempt have no outcome yet."""
        self._all_settled: asyncio.Future[None]
        """Done when every append of the present attempt has an outcome; `begin` creates it."""

    def begin(self, count: int) -> list[AppendToken]:
        """Begin an attempt with ``count`` appends; return a token for each of them.

        Outcomes of tokens of an earlier attempt are ignored from now on.
        """
        assert not self._num_open, "an append is sent again only when it has an outcome"
        self._tokens = [AppendToken(self) for _ in range(count)]
        self._num_open = count
        self.attempts += 1
        self._all_settled = asyncio.get_running_loop().create_future()
        return self._tokens

    async def wait_for_outcomes(self) -> None:
        """Wait until every append of the present attempt has an outcome."""
        await self._all_settled

    @property
    def without_outcome(self) -> list[AppendToken]:
        """The tokens of those appends of the present attempt that have no outcome yet."""
        return [token for token in self._tokens if token.result is None]

    @property
    def outcomes(self) -> list[AppendResult]:
        """The known outcomes of the present attempt, in the order of its appends."""
        return [token.result for token in self._tokens if token.result is not None]

    def leave(
        self,
        in_flight: InFlightLimit,
        sizes: Sequence[int],
        is_in_doubt: Callable[[ReqId], bool],
    ) -> None:
        """Stop counting the appends of the present attempt as in flight.

        ``sizes`` has the bytes of their data. An append in doubt counts until its outcome is
        certain. Otherwise appends that time out one after the other would be sent without a limit
        while the partition gives no answers.
        """
        count, total_size = len(sizes), sum(sizes)
        # The attempt may have failed before `begin`, because the client has ended. Then the tokens
        # are missing, or they are those of the attempt before. None of their appends is in doubt,
        # so all of ``sizes`` stop counting.
        for token, size in zip(self._tokens, sizes, strict=False):
            result = token.result
            if result is not None and result.req_id is not None and is_in_doubt(result.req_id):
                token.when_certain = partial(in_flight.leave, 1, size)
                count, total_size = count - 1, total_size - size
        if count:
            in_flight.leave(count, total_size)

    def count_outcome(self) -> None:
        """Count one more outcome. After the last one, `wait_for_outcomes` returns."""
        self._num_open -= 1
        # If `wait_for_outcomes` was cancelled, the future is cancelled, too. The appends that are
        # withdrawn afterwards still get outcomes.
        if not self._num_open and not self._all_settled.done():
            self._all_settled.set_result(None)


class AppendToken:
    """One append of a call: the token by which `core.appends.PartitionAppends` identifies it."""

    __slots__ = ("_call", "result", "when_certain")

    def __init__(self, call: AppendCall) -> None:
        self._call: AppendCall | None = call
        """The call, None after the first outcome: a cycle of references would keep both in memory
        until the garbage collector runs."""
        self.result: AppendResult | None = None
        """The first outcome, without this token; None before."""
        self.when_certain: Callable[[], None] | None = None
        """Called once, when an append with the outcome UNCERTAIN gets a certain outcome."""

    def settle(self, result: AppendResult) -> None:
        """Record the first outcome. A second outcome does not replace it.

        An append that its caller has withdrawn or given up gets a second outcome. The caller has
        the first already, so the second one only says that the append is not in doubt any more.
        """
        if self.result is None:
            # Drop the token, which is this object: a reference to itself would be a cycle, too.
            self.result = AppendResult(None, result.outcome, result.number, result.req_id)
            call, self._call = self._call, None
            assert call is not None, "a token without an outcome belongs to a call"
            call.count_outcome()
        elif self.when_certain is not None:
            when_certain, self.when_certain = self.when_certain, None
            when_certain()


def batch_outcome(result: AppendResult) -> BatchOutcome | None:
    """Return the outcome of an append of a batch as a public value.

    Return None for an outcome that makes the whole call raise an error.
    """
    match result.outcome:
        case Outcome.COMMITTED:
            return Appended(result.number)
        case Outcome.LOCK_FAILED:
            return Refused(result.number)
        case Outcome.ABSENT:
            return Absent()
        case _:
            return None
