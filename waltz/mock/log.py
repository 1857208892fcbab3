"""The log and the lock table of a mock partition. No input or output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from waltz.client.core.values import Draft
from waltz.protocol.locks import Lock
from waltz.protocol.records import NO_TRANSACTION, ReqId


@dataclass(frozen=True, slots=True)
class Request:
    """An append as it arrives. Its locks are checked against ``mark``."""

    req_id: ReqId
    header: int
    data: bytes
    write_locks: tuple[Lock, ...]
    read_locks: tuple[Lock, ...]
    append_locks: tuple[Lock, ...]
    mark: int

    @classmethod
    def of(cls, req_id: ReqId, draft: Draft[Any], data: bytes, mark: int) -> Request:
        """Return ``draft`` as it arrives; ``data`` are its bytes."""
        locks = (tuple(draft.write_locks), tuple(draft.read_locks), tuple(draft.append_locks))
        return cls(req_id, draft.header, data, *locks, mark)


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction in the log."""

    id: int
    req_id: ReqId
    header: int
    data: bytes


class MockLog:
    """One partition. Its locks never collide, unlike the hashes of a server."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._taken: dict[Lock, int] = {}

    @property
    def mark(self) -> int:
        """The last id, -1 if there is none."""
        return len(self.entries) - 1

    def conflict(self, request: Request) -> int:
        """Return the last transaction beyond the request's mark that took one of its locks, or -1.

        Write and read locks are checked, append locks are not.
        """
        checked = (*request.write_locks, *request.read_locks)
        last = max((self._taken.get(lock, NO_TRANSACTION) for lock in checked), default=-1)
        return last if last > request.mark else NO_TRANSACTION

    def append(self, request: Request) -> int:
        """Append it and return its id; its write and append locks are taken."""
        transaction_id = len(self.entries)  # ids are dense
        self.entries.append(Entry(transaction_id, request.req_id, request.header, request.data))
        for lock in (*request.write_locks, *request.append_locks):
            self._taken[lock] = transaction_id
        return transaction_id

    def between(self, after: int, until: int, most: int) -> Iterable[Entry]:
        """Return the entries after ``after``, up to ``until`` and ``most`` of them."""
        return self.entries[after + 1 : min(until + 1, after + 1 + most)]
