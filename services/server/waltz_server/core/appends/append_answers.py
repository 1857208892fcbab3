"""Answer appends with their outcomes (spec/wire.md sections 4, 9 and 12). Pure.

The answers to an `AnsweredAppendRequest` (from protocol version 6 on) are made from bytes that the
server has already: the request id of the append is not decoded. All answers of one commit to one
connection are one message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from waltz.protocol import NO_TRANSACTION, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import OutcomeKind
from waltz.protocol.client_numbers import APPEND_ANSWERS_TYPE
from waltz.protocol.frames import CLIENT_SERVER, HEAD_BYTES
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch, AppendBatches
from waltz_server.core.appends.append_queue import RefusedAppend
from waltz_server.core.effects import Ready, SendToClient
from waltz_server.core.peer import Peer

# The head of a frame, and the message type.
_HEAD_AND_TYPE = struct.Struct(">bhib")
# The log's mark, and the number of answers.
_MARK_AND_COUNT = struct.Struct(">qi")
# The kind of an outcome and its transaction id, which follow the append's request id.
_OUTCOME = struct.Struct(">bq")
_REQ_ID_BYTES = 16
_ANSWER_BYTES = _REQ_ID_BYTES + _OUTCOME.size
# The size of a message without its answers, as the length in a frame's head counts it.
_FIXED_BYTES = _HEAD_AND_TYPE.size - HEAD_BYTES + _REQ_ID_BYTES + _MARK_AND_COUNT.size


class OutcomeAnswers:
    """Sends the outcomes of appends to their clients, as each kind of append demands.

    A batch has one answer with all its outcomes (`AppendBatches`). An `AnsweredAppendRequest` has
    an answer of its own, which goes to `Append.answer_to`. Any other append is answered only if a
    lock refuses it: its client sees in its feed whether it is committed.

    The methods get the log's present high-water mark as ``mark``.
    """

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._batches = AppendBatches(ready)

    def open(self, batch: AppendBatch) -> None:
        """Register a batch that is accepted."""
        self._batches.open(batch)

    def refused(self, refused: RefusedAppend, mark: int) -> None:
        """Answer an append that the append queue has refused."""
        peer, append, outcome = refused
        if self._batches.refused(append, outcome):
            return
        if append.answer_to is not None:
            self._answer(append.answer_to, append, outcome.kind, outcome.transaction_id, mark)
        else:
            failure = cs.LockFailure(ReqId.decode(append.req_id), outcome.transaction_id)
            self._ready.add(SendToClient(peer, cs.encode(failure, peer.version)))

    def committed(self, appends: Sequence[Append], first_id: int, mark: int) -> None:
        """Answer ``appends``, which have consecutive ids from ``first_id`` on."""
        self._batches.committed(appends, first_id)
        answers_by_peer: dict[Peer, list[bytes]] = {}
        pack, committed = _OUTCOME.pack, OutcomeKind.COMMITTED
        for transaction_id, append in enumerate(appends, first_id):
            peer = append.answer_to
            if peer is not None:
                answer = append.req_id + pack(committed, transaction_id)
                if peer in answers_by_peer:
                    answers_by_peer[peer].append(answer)
                else:
                    answers_by_peer[peer] = [answer]
        for peer, answers in answers_by_peer.items():
            self._ready.add(SendToClient(peer, _frame(peer, answers, mark)))

    def absent(self, appends: Sequence[Append], mark: int) -> None:
        """Answer ``appends``, which are not in the log and never will be."""
        self._batches.ended(appends, OutcomeKind.ABSENT)
        for append in appends:
            if append.answer_to is not None:
                self._answer(append.answer_to, append, OutcomeKind.ABSENT, NO_TRANSACTION, mark)

    def dropped(self, appends: Sequence[Append]) -> None:
        """Answer the batches of ``appends``, whose generation ended before they were sent.

        A batch gets ABSENT: its client does not send it again by itself. A single append has no
        answer, because after ABSENT its client sends it again. A client that does not know the new
        generation yet would use the old one, the server would drop the append again, and so on.
        Without an answer, the client learns the new generation, mounts the partition in the new
        generation, and looks for the append in the log.
        """
        self._batches.ended(appends, OutcomeKind.ABSENT)

    def unresolved(self, appends: Sequence[Append]) -> None:
        """Answer the batches of ``appends``: only the log shows if they are committed.

        A single append has no answer: its client looks for it in the log.
        """
        self._batches.ended(appends, OutcomeKind.UNKNOWN)

    def close(self) -> None:
        """Answer the batches that have no answer yet: this server releases the partition."""
        self._batches.close()

    def _answer(
        self, peer: Peer, append: Append, kind: OutcomeKind, transaction_id: int, mark: int
    ) -> None:
        answer = append.req_id + _OUTCOME.pack(kind, transaction_id)
        self._ready.add(SendToClient(peer, _frame(peer, [answer], mark)))


def _frame(peer: Peer, answers: list[bytes], mark: int) -> bytes:
    """Return one message with ``answers``.

    An answer begins with the request id of its append. That of the first one is also the request id
    of the message.
    """
    length = _FIXED_BYTES + _ANSWER_BYTES * len(answers)
    head = _HEAD_AND_TYPE.pack(CLIENT_SERVER.magic, peer.version, length, APPEND_ANSWERS_TYPE)
    req_id = answers[0][:_REQ_ID_BYTES]
    return b"".join((head, req_id, _MARK_AND_COUNT.pack(mark, len(answers)), *answers))
