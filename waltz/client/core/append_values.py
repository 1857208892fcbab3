"""An append and its outcome. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from waltz.protocol.records import ReqId


class Append(NamedTuple):
    """An append: data, header, and locks as hashes.

    The locks are checked against ``mark``. If ``mark`` is None, they are checked against the last
    transaction that the client has received when it sends the append.
    """

    data: bytes
    checksum: int
    header: int = 0
    write_locks: tuple[int, ...] = ()
    read_locks: tuple[int, ...] = ()
    append_locks: tuple[int, ...] = ()
    mark: int | None = None

    @property
    def num_locks(self) -> int:
        """The number of locks of all three kinds."""
        return len(self.write_locks) + len(self.read_locks) + len(self.append_locks)


class Outcome(Enum):
    """How an append ended."""

    COMMITTED = "in the log"
    ABSENT = "not in the log, and never will be"
    LOCK_FAILED = "refused because of a lock"
    AHEAD = "refused: the log ends before the last transaction that this client has seen"
    UNSUPPORTED = "not sent: the server's version lacks a kind of lock, or batches"
    UNSENT = "not sent"
    UNCERTAIN = "sent, and in doubt"


class Settled(NamedTuple):
    """The outcome of the append that ``token`` identifies.

    ``number`` is the transaction id for COMMITTED, the id of the transaction that took the lock for
    LOCK_FAILED, the log's mark for AHEAD, and the server's version for UNSUPPORTED. ``req_id`` is
    set for UNCERTAIN.
    """

    token: object
    outcome: Outcome
    number: int = -1
    req_id: ReqId | None = None


class SentAppend(NamedTuple):
    """An append that was sent and has no outcome yet.

    ``order`` grows with each append that is sent. ``committed`` is the transaction id if the server
    has answered that the append is committed, and the feed has not shown the transaction yet.
    """

    order: int
    token: object
    req_id: ReqId
    committed: int | None = None

    def outcome_without_feed(self) -> Settled:
        """Return the outcome that is known now, for a caller that does not wait for the feed."""
        if self.committed is not None:
            return Settled(self.token, Outcome.COMMITTED, self.committed)
        return Settled(self.token, Outcome.UNCERTAIN, req_id=self.req_id)
