"""Gather the outcomes of the appends of one batch into one answer to the client. Pure.

The append queue (`append_queue`) grants or refuses all appends of a batch at the same instant. From
then on the store treats the granted appends like single ones: it may send them in several record
batches. The client gets one answer, when every append of its batch has an outcome. See
transcripts/clients/batches_and_faults.txt.
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
    """The appends of one client request, at least one. All are decided at the same instant."""

    peer: Peer
    req_id: ReqId
    appends: Sequence[Append]


@dataclass(slots=True)
class _OpenBatch:
    """A batch, the outcomes of its appends so far, and how many outcomes are missing."""

    batch: AppendBatch
    outcomes: list[BatchedOutcome | None]
    missing: int


class AppendBatches:
    """The batches that are not answered yet."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._open_appends: dict[Append, tuple[_OpenBatch, int]] = {}
        """For each append without an outcome: its batch, and its position in that batch."""

    def open(self, batch: AppendBatch) -> None:
        """Register ``batch``, to collect the outcome of each of its appends."""
        open_batch = _OpenBatch(batch, [None] * len(batch.appends), len(batch.appends))
        for position, append in enumerate(batch.appends):
            self._open_appends[append] = (open_batch, position)

    def refused(self, append: Append, outcome: BatchedOutcome) -> bool:
        """Record that the append queue has refused ``append``, for the reason in ``outcome``.

        Return False if ``append`` belongs to no batch; the caller must then answer it.
        """
        if append not in self._open_appends:
            return False
        self._settle(append, outcome)
        return True

    def committed(self, appends: Iterable[Append], first_id: int) -> None:
        """Record that ``appends`` are in the log, with consecutive ids from ``first_id`` on.

        Appends that belong to no batch are ignored, here and in `ended`.
        """
        if self._open_appends:
            for position, append in enumerate(appends):
                self._settle(append, BatchedOutcome(OutcomeKind.COMMITTED, first_id + position))

    def ended(self, appends: Iterable[Append], kind: OutcomeKind) -> None:
        """Record the outcome ``kind`` of appends that are not known to be committed."""
        if self._open_appends:
            for append in appends:
                self._settle(append, BatchedOutcome(kind))

    def close(self) -> None:
        """Answer every open batch, because this server releases the partition.

        The outcomes that are missing are answered as UNKNOWN.
        """
        self.ended(list(self._open_appends), OutcomeKind.UNKNOWN)

    def _settle(self, append: Append, outcome: BatchedOutcome) -> None:
        """Record the outcome of ``append``; answer its batch if no other outcome is missing.

        Appends that belong to no batch are ignored.
        """
        entry = self._open_appends.pop(append, None)
        if entry is None:
            return
        open_batch, position = entry
        assert open_batch.outcomes[position] is None, "an append has one outcome"
        open_batch.outcomes[position] = outcome
        open_batch.missing -= 1
        if not open_batch.missing:
            # No outcome is None now; the condition is for the type checker.
            outcomes = tuple(known for known in open_batch.outcomes if known is not None)
            assert len(outcomes) == len(open_batch.batch.appends), "every append has an outcome"
            self._ready.add(batch_answer(open_batch.batch.peer, open_batch.batch.req_id, outcomes))


def absent_answer(peer: Peer, req_id: ReqId, count: int) -> SendToClient:
    """Return the answer to a batch that is not accepted: no append of it will be in the log.

    The batch has the request id ``req_id`` and ``count`` appends.
    """
    return batch_answer(peer, req_id, (BatchedOutcome(OutcomeKind.ABSENT),) * count)


def batch_answer(peer: Peer, req_id: ReqId, outcomes: tuple[BatchedOutcome, ...]) -> SendToClient:
    """Return the answer to the batch ``req_id``; ``outcomes`` has one entry for each append."""
    return SendToClient(peer, cs.encode(cs.AppendBatchResponse(req_id, outcomes), peer.version))
