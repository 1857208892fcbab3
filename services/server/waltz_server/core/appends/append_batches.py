"""Batches of appends: gathers what becomes of each append into one answer. Pure.

A batch is decided as one by the queue; after that its appends go their ways like any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import Ready, SendToClient
from waltz_server.core.peer import Peer


@dataclass(frozen=True, slots=True, eq=False)
class AppendBatch:
    """Appends of one client that are decided at one instant; there is at least one."""

    peer: Peer
    req_id: ReqId
    appends: Sequence[Append]


@dataclass(slots=True)
class _Ledger:
    batch: AppendBatch
    outcomes: list[BatchedOutcome | None]
    missing: int


class AppendBatches:
    """The batches whose answers are due."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._ledgers: dict[Append, tuple[_Ledger, int]] = {}
        """For each open append of a batch, its batch and its number in it."""

    def open(self, batch: AppendBatch) -> None:
        """Expect an outcome for each append of ``batch``."""
        ledger = _Ledger(batch, [None] * len(batch.appends), len(batch.appends))
        for number, append in enumerate(batch.appends):
            self._ledgers[append] = (ledger, number)

    def refused(self, append: Append, taken_by: int) -> bool:
        """A lock was taken by ``taken_by``; returns whether the append is of a batch."""
        if append not in self._ledgers:
            return False
        self._settle(append, BatchedOutcome(OutcomeKind.REFUSED, taken_by))
        return True

    def committed(self, appends: Iterable[Append], first_id: int) -> None:
        """These are in the log from ``first_id`` on, whether they are of batches or not."""
        if self._ledgers:
            for position, append in enumerate(appends):
                self._settle(append, BatchedOutcome(OutcomeKind.COMMITTED, first_id + position))

    def ended(self, appends: Iterable[Append], kind: OutcomeKind) -> None:
        """These were not committed as far as is known, whether they are of batches or not."""
        if self._ledgers:
            for append in appends:
                self._settle(append, BatchedOutcome(kind))

    def close(self) -> None:
        """The partition is no longer here: the log will tell what becomes of what is open."""
        self.ended(list(self._ledgers), OutcomeKind.UNKNOWN)

    def _settle(self, append: Append, outcome: BatchedOutcome) -> None:
        entry = self._ledgers.pop(append, None)
        if entry is None:
            return
        ledger, number = entry
        ledger.outcomes[number] = outcome
        ledger.missing -= 1
        if not ledger.missing:
            outcomes = tuple(each for each in ledger.outcomes if each is not None)
            self._ready.add(batch_answer(ledger.batch.peer, ledger.batch.req_id, outcomes))


def absent(peer: Peer, req_id: ReqId, count: int) -> SendToClient:
    """Return the answer to a batch that is not taken: nothing of it will ever be in the log."""
    return batch_answer(peer, req_id, (BatchedOutcome(OutcomeKind.ABSENT),) * count)


def batch_answer(peer: Peer, req_id: ReqId, outcomes: tuple[BatchedOutcome, ...]) -> SendToClient:
    """Return the answer to a batch."""
    return SendToClient(peer, cs.encode(cs.AppendBatchResponse(req_id, outcomes), peer.version))
