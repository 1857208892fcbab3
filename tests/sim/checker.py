"""Check the guarantees during a run and at its end; raise `Violation` if one is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tests.sim.batch_checks import BatchChecks
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import Lock, Op
from tests.sim.range_checks import RangeChecks
from tests.sim.replica import Replica
from waltz.client.core.codec import FeedRecord
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata
from waltz.protocol import Record
from waltz_storage.core.errors import PartitionDamaged

_READ_AT_ONCE = 30
"""How many committed transactions accumulate before a replica is read."""


class Checker:
    """Collects the observations that clients and servers make of one partition's log."""

    def __init__(
        self,
        replicas: Mapping[str, Replica],
        counters: Counter[str],
        generation: Callable[[], int],
        lock_table_size: int,
        *,
        reads_replicas: bool,
    ) -> None:
        """With ``reads_replicas``, each commit is checked by reading the disks of its quorum."""
        self.batches = BatchChecks(
            lock_table_size, lambda: (generation(), len(self._opened)), counters
        )
        self.ranges = RangeChecks(self)
        self.log: dict[int, tuple[int, int, int]] = {}
        self.read: dict[int, bytes] = {}
        self.ops: dict[bytes, Op] = {}
        self.mark = -1
        """The highest mark up to which any server has committed."""
        self.committed = 0
        self._opened: dict[int, int] = {}
        self._content: list[tuple[bytes, bytes]] = []
        """The committed transactions: request ids, and the rest of the records."""
        self._replicas = replicas
        self._reads_replicas = reads_replicas

    def fed(self, who: str, records: Iterable[FeedRecord]) -> None:
        """Check feed records that ``who`` received: they must be the same for every client."""
        for client, generation, _, seq, transaction_id, _ in records:
            seen = (client, generation, seq)
            if self.log.setdefault(transaction_id, seen) != seen:
                raise Violation(
                    Guarantee.SAME,
                    f"{who} sees {seen} as {transaction_id}, others {self.log[transaction_id]}",
                )
            if transaction_id > self.mark:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{who} sees {transaction_id}, but commits end at {self.mark}",
                )

    def streamed(self, who: str, position: int, records: Iterable[FeedRecord]) -> None:
        """Check transactions that a stream at ``position`` delivered to its reader."""
        for record in records:
            position += 1
            if record[4] != position:
                raise Violation(Guarantee.SAME, f"{who} receives {record[4]} instead of {position}")

    def data_read(self, who: str, transaction_id: int, data: bytes) -> None:
        """Check a transaction's data that ``who`` read."""
        if self.read.setdefault(transaction_id, data) != data:
            raise Violation(Guarantee.SAME, f"{who} reads {transaction_id} with other data")

    def client_committed(self, op: Op, transaction_id: int) -> None:
        """Record that a client received the answer: committed."""
        self._must_be_open(op)
        op.committed_as = transaction_id
        self.committed += 1

    def client_denied(self, op: Op) -> None:
        """Record that a client received the answer: not in the log."""
        self._must_be_open(op)
        op.denied = True

    def client_locked_out(self, op: Op, taken_by: int, mark: int) -> None:
        """Check the refusal of a lock to a client that has seen the log up to ``mark``."""
        self.client_denied(op)
        op.refused_by = taken_by
        assert op.mark is not None
        if taken_by <= op.mark:
            raise Violation(
                Guarantee.LOCKS, f"{op.name} with mark {op.mark} was refused because of {taken_by}"
            )
        if taken_by > mark:
            raise Violation(
                Guarantee.LOCKS,
                f"{op.name} was refused because of {taken_by}, which its client has not seen: a "
                "retry would be refused again",
            )

    def session_opened(self, server: str, session_id: int, mark: int) -> None:
        """Check a store session that has opened with the log up to ``mark``."""
        if mark < self.mark:
            raise Violation(
                Guarantee.DURABLE,
                f"{server} opens session {session_id} at {mark}, but {self.mark} was committed",
            )
        self._opened[session_id] = mark

    def server_committed(
        self,
        server: str,
        session_id: int,
        mark: int,
        replicas: Collection[str],
        written: PartitionMetadata,
    ) -> None:
        """Check a server's new high-water mark: a quorum must hold everything up to it.

        ``replicas`` are those of the committing session. ``written`` is the metadata by which the
        next session would vote: if it is of this session, it must name a quorum of holders.
        """
        for later, opened_at in self._opened.items():
            if later > session_id and mark > opened_at:
                raise Violation(
                    Guarantee.FENCED,
                    f"{server} commits {mark} in session {session_id}, but session {later} has "
                    f"begun after {opened_at}",
                )
        counted = set(replicas)
        if written.session_id == session_id:
            counted = {n for n, s in written.replicas.items() if s.closing_mark == UNRESOLVED}
        holding = sorted(name for name in counted if self._replicas[name].may_have_held(mark))
        if len(holding) < len(replicas) // 2 + 1:
            raise Violation(
                Guarantee.DURABLE,
                f"{server} commits {mark}, but of {sorted(counted)} only {holding} may hold it",
            )
        self.mark = max(mark, self.mark)
        if self._reads_replicas:
            for name in holding:
                if mark - self._replicas[name].verified >= _READ_AT_ONCE:
                    self._read_replica(name, mark)

    def at_rest(self, logs: Mapping[str, list[Record]], checksums: Collection[int]) -> None:
        """Check the end of a run, when nothing changes; ``logs`` are the replicas' contents."""
        contents = list(logs.values())
        sizes = {name: len(content) for name, content in logs.items()}
        if any(content != contents[0] for content in contents):
            raise Violation(Guarantee.SAME, f"replicas differ when quiet: {sizes}")
        if len(set(checksums)) > 1:
            raise Violation(Guarantee.SAME, f"checksums of equal replicas differ: {checksums}")
        records = contents[0]
        if [r.transaction_id for r in records] != list(range(len(records))):
            raise Violation(Guarantee.SAME, "the log has gaps")
        for transaction_id, seen in self.log.items():
            if transaction_id >= len(records):
                raise Violation(Guarantee.DURABLE, f"{transaction_id} was seen and is lost")
            r = records[transaction_id].req_id
            if (r.client_id, r.generation, r.seq) != seen:
                raise Violation(Guarantee.DURABLE, f"{transaction_id} has changed")
        for transaction_id, data in self.read.items():
            if records[transaction_id].data != data:
                raise Violation(Guarantee.SAME, f"{transaction_id} was read with other data")
        self._check_marks(records)
        self._check_ops(records)
        ops = [self.ops[record.data] for record in records]
        _check_locks(ops)
        opened_at = frozenset(self._opened.values())
        self.batches.at_rest(ops, opened_at)
        for op in self.ops.values():
            if op.refused_by is not None:
                self.batches.check_refusal(op, ops, opened_at)

    def _read_replica(self, name: str, mark: int) -> None:
        """Compare the unread part of a replica, up to ``mark``, with the other replicas."""
        replica, content = self._replicas[name], self._content
        log = replica.log
        while log is not None and replica.verified < min(mark, log.max_id):
            first = replica.verified + 1
            try:
                batch = replica.read(log, first, mark - replica.verified, 1 << 20)
            except PartitionDamaged as damaged:
                raise Violation(Guarantee.READABLE, f"{name}: {damaged}") from damaged
            for transaction_id, req_id, rest in batch.parts():
                if transaction_id == len(content):
                    content.append((req_id, rest))
                elif content[transaction_id] != (req_id, rest):
                    raise Violation(
                        Guarantee.SAME,
                        f"{name} holds a different {transaction_id} than the rest of its quorum",
                    )
            replica.verified += batch.count

    def _must_be_open(self, op: Op) -> None:
        if op.committed_as is not None or op.denied:
            raise Violation(Guarantee.ONCE, f"{op.name} ended twice")

    def _check_marks(self, records: list[Record]) -> None:
        for name, replica in self._replicas.items():
            for transaction_id, req_id in replica.trusted.items():
                if transaction_id >= len(records) or records[transaction_id].req_id != req_id:
                    raise Violation(
                        Guarantee.SAME, f"a mark on {name} covered a different {transaction_id}"
                    )

    def _check_ops(self, records: list[Record]) -> None:
        places: dict[bytes, int] = {}
        for record in records:
            if record.data in places:
                name = self.ops[record.data].name
                raise Violation(
                    Guarantee.ONCE,
                    f"{name} is in the log as {places[record.data]} and {record.transaction_id}",
                )
            places[record.data] = record.transaction_id
        for data, op in self.ops.items():
            place = places.get(data)
            if op.committed_as is not None and place != op.committed_as:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{op.name} was answered committed as {op.committed_as}, but is at {place}",
                )
            if op.denied and place is not None:
                raise Violation(
                    Guarantee.ONCE, f"{op.name} was answered not in the log, but is at {place}"
                )


def _check_locks(log: Sequence[Op]) -> None:
    """Check that no append is in the log whose lock was taken after its client's mark."""
    taken: dict[Lock, list[int]] = {}
    for place, op in enumerate(log):
        assert op.mark is not None
        for lock in op.write + op.read:
            # Locks taken by its own batch do not conflict.
            others = (
                by
                for by in reversed(taken.get(lock, ()))
                if op.batch is None or log[by].batch is not op.batch
            )
            latest = next(others, -1)
            if latest > op.mark:
                raise Violation(
                    Guarantee.LOCKS,
                    f"{place} ({op.name}) at mark {op.mark}: lock {lock} was taken by {latest}",
                )
        for lock in op.write + op.append:
            taken.setdefault(lock, []).append(place)
