"""Check batches of appends and refused appends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import Batch, LockHash, Operation
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz_server.core.appends.lock_table import LockTable


class BatchChecks:
    """Compares a server's answers to batches with the log.

    ``generation_and_sessions`` returns the partition's generation and the number of store sessions
    that have opened. A fault that can cut a batch increases one of them.
    """

    def __init__(
        self,
        lock_table_size: int,
        generation_and_sessions: Callable[[], tuple[int, int]],
        counters: Counter[str],
    ) -> None:
        self._slots = LockTable(lock_table_size, -1).slots
        """The slots of locks in a server's lock table: different locks may share a slot."""
        self._generation_and_sessions = generation_and_sessions
        self._counters = counters
        self._sent: list[Batch] = []

    def record_sent(self, batch: Batch, generation: int) -> None:
        """Record that a client sends a batch, in the generation that it knows."""
        batch.generation = generation
        _, batch.sessions_before = self._generation_and_sessions()
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
        kinds = {each.kind for each in outcomes}
        for kind in kinds:
            self._counters[f"client: batch with an append {kind.name.lower()}"] += 1
        granted = [each for each in outcomes if each.kind is not OutcomeKind.REFUSED]
        committed = [each.transaction_id for each in granted if each.kind is OutcomeKind.COMMITTED]
        if committed and OutcomeKind.REFUSED in kinds:
            self._counters["client: batch committed except refused appends"] += 1
        first_granted = [each.transaction_id for each in granted[: len(committed)]]
        if first_granted != committed or not _are_consecutive(committed):
            raise Violation(
                Guarantee.BATCH,
                f"the granted appends of {batch.name} are not a prefix: {_brief(outcomes)}",
            )
        generation, sessions = self._generation_and_sessions()
        if (
            kinds & {OutcomeKind.ABSENT, OutcomeKind.UNKNOWN}
            and generation == batch.generation
            and sessions == batch.sessions_before
        ):
            raise Violation(
                Guarantee.BATCH, f"{batch.name} was cut without a fault: {_brief(outcomes)}"
            )

    def check_at_rest(self, log: Sequence[Operation], opened_at: frozenset[int]) -> None:
        """Check all batches against the final ``log``.

        ``opened_at`` are the marks at which store sessions opened.
        """
        ids = {op: transaction_id for transaction_id, op in enumerate(log)}
        for batch in self._sent:
            for op, outcome in zip(batch.ops, batch.outcomes, strict=False):
                _check_outcome(op, outcome, ids.get(op))
            present = [op for op in batch.ops if op in ids]
            if not present:
                continue
            first_id = ids[present[0]]
            if any(op not in ids and not op.write_locks + op.read_locks for op in batch.ops):
                # No lock refused this append, so it was cut off.
                self._counters["client: batch cut to a prefix"] += 1
            if not _are_consecutive([ids[op] for op in present]):
                raise Violation(
                    Guarantee.BATCH, f"{batch.name} is in the log as {[ids[op] for op in present]}"
                )
            for op in batch.ops[: batch.ops.index(present[-1])]:
                if op not in ids and not self._may_be_refused(op, log[:first_id], opened_at):
                    raise Violation(
                        Guarantee.BATCH,
                        f"{op.name} was refused in {batch.name} without a lock conflict",
                    )

    def check_refusal(
        self, op: Operation, log: Sequence[Operation], opened_at: frozenset[int]
    ) -> None:
        """Raise Violation unless the transaction named in the refusal of ``op`` took its lock.

        A session that opens after another owner's counts every lock as taken at its mark.
        """
        taken_by = op.refused_by
        assert taken_by is not None
        if op.batch is not None and log[taken_by].batch is op.batch:
            raise Violation(
                Guarantee.LOCKS, f"{op.name} was refused because of {taken_by}, of its own batch"
            )
        if taken_by not in opened_at and not self._conflicts(op, log[taken_by]):
            raise Violation(
                Guarantee.LOCKS,
                f"{op.name} was refused because of {taken_by}, which took none of its locks",
            )

    def _may_be_refused(
        self, op: Operation, before: Sequence[Operation], opened_at: frozenset[int]
    ) -> bool:
        """Whether a lock of ``op`` was or counts as taken after its mark, in the log ``before``."""
        assert op.mark is not None
        return bool(op.write_locks or op.read_locks) and (
            any(mark > op.mark for mark in opened_at)
            or any(self._conflicts(op, each) for each in before[op.mark + 1 :])
        )

    def _conflicts(self, op: Operation, other: Operation) -> bool:
        """Whether ``other`` takes a lock that ``op`` checks, or one with the same slot."""
        return not self._slots_of(op.write_locks + op.read_locks).isdisjoint(
            self._slots_of(other.write_locks + other.append_locks)
        )

    def _slots_of(self, locks: tuple[LockHash, ...]) -> set[int]:
        return {slot for slots in self._slots(locks) for slot in slots}


def _check_outcome(op: Operation, outcome: BatchedOutcome, found: int | None) -> None:
    """Check an outcome; ``found`` is the transaction id in the final log, None if it is absent."""
    match outcome.kind:
        case OutcomeKind.COMMITTED:
            is_right = found == outcome.transaction_id
        case OutcomeKind.UNKNOWN:
            is_right = True
        case OutcomeKind.REFUSED | OutcomeKind.ABSENT:
            is_right = found is None
    if not is_right:
        raise Violation(
            Guarantee.BATCH,
            f"{op.name} is said to be {outcome.kind.name} {outcome.transaction_id}, but is {found}",
        )


def _are_consecutive(ids: Sequence[int]) -> bool:
    return not ids or list(ids) == list(range(ids[0], ids[0] + len(ids)))


def _brief(outcomes: Sequence[BatchedOutcome]) -> str:
    return ", ".join(f"{each.kind.name} {each.transaction_id}" for each in outcomes)
