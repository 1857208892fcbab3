"""Check the answers to the single appends that a client has sent over one connection."""

from __future__ import annotations

from tests.sim.checker import Checker
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import Operation
from waltz.protocol import client_server as cs
from waltz.protocol.batches import AppendAnswer, OutcomeKind


class AnswerChecks:
    """Compares the answers of one connection with the appends that were sent over it.

    Every method raises `Violation`.
    """

    def __init__(self, who: str, checker: Checker) -> None:
        self._who = who
        self._checker = checker
        self._open: dict[tuple[int, int], Operation] = {}
        """The appends without an answer, by generation and sequence number."""
        self._last_committed = -1

    def record_sent(self, request: cs.AnsweredAppendRequest) -> None:
        """Record that the client sends an append."""
        key = (request.req_id.generation, request.req_id.seq)
        self._open[key] = self._checker.ops[request.data]

    def check_answers(self, message: cs.AppendAnswers) -> None:
        """Check answers that have arrived: each is to an append that has no answer yet."""
        if message.high_water_mark > self._checker.mark:
            raise Violation(
                Guarantee.DURABLE,
                f"{self._who} is answered with the mark {message.high_water_mark}, but commits end "
                f"at {self._checker.mark}",
            )
        for answer in message.answers:
            op = self._open.pop((answer.generation, answer.seq), None)
            if op is None:
                raise Violation(
                    Guarantee.ONCE, f"{self._who} receives an answer to no open append: {answer}"
                )
            self._check_outcome(op, answer, message.high_water_mark)

    def _check_outcome(self, op: Operation, answer: AppendAnswer, mark: int) -> None:
        number = answer.transaction_id
        match OutcomeKind(answer.kind):
            case OutcomeKind.COMMITTED:
                if not self._last_committed < number <= mark:
                    raise Violation(
                        Guarantee.ONCE,
                        f"{op.name} is answered as committed as {number}, after "
                        f"{self._last_committed} and with the mark {mark}",
                    )
                self._last_committed = number
                self._checker.check_fed(self._who, [(*answer[:4], number, 0)])
            case OutcomeKind.REFUSED:
                op.refused_by = number
                self._checker.answered_absent(answer)
            case OutcomeKind.ABSENT | OutcomeKind.AHEAD:
                self._checker.answered_absent(answer)
            case OutcomeKind.UNKNOWN:
                raise Violation(Guarantee.ONCE, f"{op.name} is answered as unknown")
