"""Check batches of appends and refused appends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import Batch, Op
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz_server.core.appends.lock_table import LockTable


class BatchChecks:
    """Compares a server's answers to batches with the log.

    ``faults`` returns the partition's generation and the number of store sessions that have opened:
    one of them grows with each fault.
    """

    def __init__(
        self,
        lock_table_size: int,
        faults: Callable[[], tuple[int, int]],
        counters: Counter[str],
    ) -> None:
        self._slots = LockTable(lock_table_size, -1).slots
        self._faults = faults
        self._counters = counters
        self._sent: list[Batch] = []

    def sent(self, batch: Batch, generation: int) -> None:
        """Record that a client sends a batch."""
        batch.generation = generation
        batch.sessions_before = self._faults()[1]
        self._sent.append(batch)

    def check_outcomes(self, batch: Batch, outcomes: Sequence[BatchedOutcome]) -> None:
        """Check a server's outcomes of a batch."""
        if len(outcomes) != len(batch.ops):
            raise Violation(
                Guarantee.BATCH,
                f"{batch.name} of {len(batch.ops)} is answered by {len(outcomes)} outcomes",
            )
        batch.outcomes = tuple(outcomes)
        for op, outcome in zip(batch.ops, outcomes, strict=True):
            if outcome.kind is OutcomeKind.REFUSED:
                op.refused_by = outcome.transaction_id
        kinds = [each.kind for each in outcomes]
        for kind in set(kinds):
            self._counters[f"client: batch with an append {kind.name.lower()}"] += 1
        granted = [each for each in outcomes if each.kind is not OutcomeKind.REFUSED]
        committed = [each.transaction_id for each in granted if each.kind is OutcomeKind.COMMITTED]
        if committed and OutcomeKind.REFUSED in kinds:
            self._counters["client: batch committed except refused appends"] += 1
        ids = [each.transaction_id for each in granted[: len(committed)]]
        if ids != committed or ids != list(range(ids[0], ids[0] + len(ids)) if ids else ()):
            raise Violation(
                Guarantee.BATCH,
                f"the granted appends of {batch.name} are not a prefix: {_brief(outcomes)}",
            )
        generation, sessions = self._faults()
        if (
            {OutcomeKind.ABSENT, OutcomeKind.UNKNOWN} & set(kinds)
            and generation == batch.generation
            and sessions == batch.sessions_before
        ):
            raise Violation(
                Guarantee.BATCH, f"{batch.name} was cut without a fault: {_brief(outcomes)}"
            )

    def at_rest(self, log: Sequence[Op], opened_at: frozenset[int]) -> None:
        """Check all batches against ``log``; ``opened_at`` are the marks of opened sessions."""
        places = {op: place for place, op in enumerate(log)}
        for batch in self._sent:
            for op, outcome in zip(batch.ops, batch.outcomes, strict=False):
                _check_outcome(op, outcome, places.get(op))
            present = [(places[op], op) for op in batch.ops if op in places]
            if not present:
                continue
            first, last = present[0][0], present[-1]
            if any(op not in places and not op.write + op.read for op in batch.ops):
                self._counters["client: batch cut to a prefix"] += 1
            if [place for place, _ in present] != list(range(first, first + len(present))):
                raise Violation(
                    Guarantee.BATCH,
                    f"{batch.name} is in the log as {[place for place, _ in present]}",
                )
            for op in batch.ops[: batch.ops.index(last[1])]:
                if op not in places and not self._may_be_refused(op, log[:first], opened_at):
                    raise Violation(
                        Guarantee.BATCH,
                        f"{op.name} was refused in {batch.name} without a lock conflict",
                    )

    def check_refusal(self, op: Op, log: Sequence[Op], opened_at: frozenset[int]) -> None:
        """Raise Violation unless the transaction named in the refusal of ``op`` took its lock.

        A session that opens after another owner's counts every lock as taken at its mark.
        """
        by = op.refused_by
        assert by is not None
        if op.batch is not None and log[by].batch is op.batch:
            raise Violation(
                Guarantee.LOCKS, f"{op.name} was refused because of {by}, of its own batch"
            )
        if by not in opened_at and not self._meet(op, log[by]):
            raise Violation(
                Guarantee.LOCKS,
                f"{op.name} was refused because of {by}, which took none of its locks",
            )

    def _may_be_refused(self, op: Op, before: Sequence[Op], opened_at: frozenset[int]) -> bool:
        assert op.mark is not None
        return bool(op.write or op.read) and (
            any(mark > op.mark for mark in opened_at)
            or any(self._meet(op, each) for each in before[op.mark + 1 :])
        )

    def _meet(self, refused: Op, other: Op) -> bool:
        """Whether ``other`` takes a lock that ``op`` checks, or one with the same slot."""
        checked = {slot for slots in self._slots(refused.write + refused.read) for slot in slots}
        taken = {slot for slots in self._slots(other.write + other.append) for slot in slots}
        return not checked.isdisjoint(taken)


def _check_outcome(op: Op, outcome: BatchedOutcome, place: int | None) -> None:
    expected = {OutcomeKind.COMMITTED: outcome.transaction_id, OutcomeKind.UNKNOWN: place}.get(
        outcome.kind
    )
    if place != expected:
        raise Violation(
            Guarantee.BATCH,
            f"{op.name} is said to be {outcome.kind.name} {outcome.transaction_id}, but is {place}",
        )


def _brief(outcomes: Sequence[BatchedOutcome]) -> str:
    return ", ".join(f"{each.kind.name} {each.transaction_id}" for each in outcomes)
