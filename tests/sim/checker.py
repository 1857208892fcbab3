"""What must hold all along and at the end; a broken promise raises `Violation`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tests.sim.storage_node import StorageNode
from waltz.client.codec import FeedRecord
from waltz.protocol import Record

Lock = int


class Violation(AssertionError):
    """The log broke a promise."""


class Op:
    """One append that a client tried: never the same bytes twice."""

    def __init__(self, data: bytes, write: tuple[Lock, ...], read: tuple[Lock, ...]) -> None:
        self.data = data
        self.write = write
        self.read = read
        self.append: tuple[Lock, ...] = ()
        self.mark: int | None = None
        self.committed_as: int | None = None
        self.denied = False


class Checker:
    """Collects what everybody saw of one partition's log."""

    def __init__(self, storages: Mapping[str, StorageNode]) -> None:
        self.log: dict[int, tuple[int, int, int]] = {}
        self.ops: dict[bytes, Op] = {}
        self.marks: dict[str, int] = {}
        self.committed = 0
        self._storages = storages

    def fed(self, who: str, records: Iterable[FeedRecord]) -> None:
        """``who`` was fed these transactions: everybody must be fed the same."""
        for client, generation, _, seq, transaction_id, _ in records:
            seen = (client, generation, seq)
            if self.log.setdefault(transaction_id, seen) != seen:
                raise Violation(
                    f"{who} sees {seen} as {transaction_id}, others {self.log[transaction_id]}"
                )

    def client_committed(self, op: Op, transaction_id: int) -> None:
        """A client was told that its append is in the log."""
        if op.committed_as is not None or op.denied:
            raise Violation(f"{op.data!r} ended twice")
        op.committed_as = transaction_id
        self.committed += 1

    def client_denied(self, op: Op) -> None:
        """A client was told that its append is not in the log."""
        if op.committed_as is not None or op.denied:
            raise Violation(f"{op.data!r} ended twice")
        op.denied = True

    def server_committed(self, server: str, mark: int, sessions: Iterable[Collection[str]]) -> None:
        """A server raised its high-water mark: a quorum must hold everything up to it.

        ``sessions`` are the replica sets of which one was the committing session's.
        """
        holding = {
            name
            for name, storage in self._storages.items()
            if storage.log is None or storage.log.max_id >= mark
        }
        if not any(len(holding & set(s)) >= len(s) // 2 + 1 for s in sessions if s):
            raise Violation(f"{server} committed {mark}, but only {sorted(holding)} may hold it")
        self.marks[server] = max(mark, self.marks.get(server, -1))

    def at_rest(self, logs: Mapping[str, list[Record]]) -> None:
        """Everything has come to rest; ``logs`` are the replicas' contents."""
        contents = list(logs.values())
        if any(content != contents[0] for content in contents):
            sizes = {name: len(content) for name, content in logs.items()}
            raise Violation(f"replicas differ when quiet: {sizes}")
        records = contents[0]
        if [r.transaction_id for r in records] != list(range(len(records))):
            raise Violation("the log has gaps")
        for transaction_id, seen in self.log.items():
            if transaction_id >= len(records):
                raise Violation(f"transaction {transaction_id} was seen and is lost")
            r = records[transaction_id].req_id
            if (r.client_id, r.generation, r.seq) != seen:
                raise Violation(f"transaction {transaction_id} has become another")
        self._check_ops(records)
        self._check_locks(records)

    def _check_ops(self, records: list[Record]) -> None:
        places: dict[bytes, int] = {}
        for record in records:
            if record.data in places:
                raise Violation(f"{record.data!r} is in the log twice")
            places[record.data] = record.transaction_id
        for data, op in self.ops.items():
            if op.committed_as is not None and places.get(data) != op.committed_as:
                raise Violation(f"{data!r} was committed as {op.committed_as}: {places.get(data)}")
            if op.denied and data in places:
                raise Violation(f"{data!r} was denied, yet it is {places[data]}")

    def _check_locks(self, records: list[Record]) -> None:
        taken: dict[Lock, int] = {}
        for record in records:
            op = self.ops[record.data]
            assert op.mark is not None
            for lock in op.write + op.read:
                if taken.get(lock, -1) > op.mark:
                    raise Violation(
                        f"{record.transaction_id} knew {op.mark}, but lock {lock} was taken by "
                        f"{taken[lock]}"
                    )
            for lock in op.write + op.append:
                taken[lock] = record.transaction_id
