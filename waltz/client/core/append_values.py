"""An append and its outcome. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from waltz.protocol.records import ReqId


class Append(NamedTuple):
    """What to append. Without a ``mark`` the locks are checked against the mark when it is sent."""

    data: bytes
    checksum: int
    header: int = 0
    write_locks: tuple[int, ...] = ()
    read_locks: tuple[int, ...] = ()
    append_locks: tuple[int, ...] = ()
    mark: int | None = None

    @property
    def num_locks(self) -> int:
        """The number of its locks, of all kinds."""
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
    """The outcome of an append.

    ``number`` is the transaction id in COMMITTED, the id of the transaction that took the lock in
    LOCK_FAILED, the log's mark in AHEAD and the server's version in UNSUPPORTED. ``req_id`` is set
    in UNCERTAIN.
    """

    token: object
    outcome: Outcome
    number: int = -1
    req_id: ReqId | None = None
