"""An append and its outcome, as `waltz.client.core.appends` gets and returns them. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from waltz.protocol.batches import BatchedAppend
from waltz.protocol.records import ReqId


class Append(NamedTuple):
    """An append: data with their checksum, header, and locks as hashes.

    The server refuses the append if a transaction after ``mark`` took one of the append's write or
    read locks. If ``mark`` is None, the server uses the last transaction that the log has when the
    append arrives. Before protocol version 6, the client sends its own mark instead, which is the
    last transaction that it has received.
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

    def batched(self) -> BatchedAppend:
        """Return the append as it is in a batch."""
        return BatchedAppend(
            self.write_locks,
            self.read_locks,
            self.append_locks,
            self.header,
            self.data,
            self.checksum,
        )


class Outcome(Enum):
    """How an append ended."""

    COMMITTED = "in the log"
    ABSENT = "not in the log, and never will be"
    LOCK_FAILED = "refused because of a lock"
    AHEAD = "refused: the log ends before the mark of the append or of the client (`Mount.mark`)"
    UNSUPPORTED = "not sent: the server's version lacks a kind of lock, or batches"
    DENIED = "refused: the client has no right to append, or to mount the partition"
    UNSENT = "not sent"
    UNCERTAIN = "sent, and in doubt"


class AppendResult(NamedTuple):
    """The outcome of an append. ``token`` is the object that the caller passed with the append.

    A token that keeps its own result sets ``token`` to None there (`AppendToken.settle`).

    The meaning of ``number`` depends on the outcome:

    * COMMITTED: the id of the append's transaction
    * LOCK_FAILED: the id of the transaction that took the lock
    * AHEAD: the id of the log's last transaction
    * UNSUPPORTED: the server's protocol version
    * other outcomes: no meaning

    ``req_id`` is the request id of an UNCERTAIN append, None for other outcomes.
    """

    token: object
    outcome: Outcome
    number: int = -1
    req_id: ReqId | None = None
