"""Check the guarantees during a run and at its end; raise `Violation` if one is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tests.sim.batch_checks import BatchChecks
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.operation import LockHash, Operation
from tests.sim.range_checks import RangeChecks
from tests.sim.replica import Replica
from waltz.client.core.codec import FeedRecord
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata
from waltz.protocol import Record
from waltz.protocol.batches import AppendAnswer
from waltz_storage.core.errors import PartitionDamaged

_READ_AFTER_COMMITS = 30
"""How many committed transactions accumulate before a replica is read to compare it."""


class Checker:
    """Compares what clients and servers observe of one partition's log.

    ``generation`` returns the present generation of the partition. With ``reads_replicas``, each
    commit is checked by reading the disks of its quorum. Every method raises `Violation`.
    """

    def __init__(
        self,
        replicas: Mapping[str, Replica],
        counters: Counter[str],
        generation: Callable[[], int],
        lock_table_size: int,
        *,
        reads_replicas: bool,
    ) -> None:
        self.batches = BatchChecks(
            lock_table_size, lambda: (generation(), len(self._opened)), counters
        )
        self.ranges = RangeChecks(self, counters)
        self.ops: dict[bytes, Operation] = {}
        """All appends that clients have tried, by their data."""
        self.mark = -1
        """The highest mark up to which any server has committed."""
        self.num_committed = 0
        """The number of appends whose clients were answered: committed."""
        self._fed: dict[int, tuple[int, int, int]] = {}
        """For each transaction that a client was fed: client id, generation and sequence number."""
        self._data: dict[int, bytes] = {}
        """The data of each transaction whose data a client has read."""
        self._absent: set[tuple[int, int, int]] = set()
        """The request ids of the appends that a server has answered as not in the log."""
        self._opened: dict[int, int] = {}
        """For each store session that has opened, the mark at which it opened."""
        self._content: list[tuple[bytes, bytes]] = []
        """The committed transactions: request ids, and the rest of the records."""
        self._replicas = replicas
        self._reads_replicas = reads_replicas

    def check_fed(self, who: str, records: Iterable[FeedRecord]) -> None:
        """Check feed records that ``who`` received: they must be the same for every client."""
        for client, generation, _, seq, transaction_id, _ in records:
            fed = (client, generation, seq)
            if self._fed.setdefault(transaction_id, fed) != fed:
                raise Violation(
                    Guarantee.SAME,
                    f"{who} sees {fed} as {transaction_id}, others {self._fed[transaction_id]}",
                )
            if transaction_id > self.mark:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{who} sees {transaction_id}, but commits end at {self.mark}",
                )

    def check_next(self, who: str, position: int, transaction_id: int) -> None:
        """Check that a stream at ``position`` delivers the next transaction to its reader."""
        if transaction_id != position + 1:
            raise Violation(
                Guarantee.SAME, f"{who} receives {transaction_id} instead of {position + 1}"
            )

    def check_data(self, who: str, transaction_id: int, data: bytes) -> None:
        """Check a transaction's data that ``who`` read: they must be the same for every client."""
        if self._data.setdefault(transaction_id, data) != data:
            raise Violation(Guarantee.SAME, f"{who} reads {transaction_id} with other data")

    def answered_absent(self, answer: AppendAnswer) -> None:
        """Record a server's answer that an append is not in the log and never will be."""
        self._absent.add((answer.client_id, answer.generation, answer.seq))

    def client_committed(self, op: Operation, transaction_id: int) -> None:
        """Record that a client received the answer: committed."""
        self._check_without_outcome(op)
        op.committed_as = transaction_id
        self.num_committed += 1

    def client_absent(self, op: Operation) -> None:
        """Record that a client received the answer: not in the log."""
        self._check_without_outcome(op)
        op.absent = True

    def client_refused(self, op: Operation, taken_by: int, mark: int) -> None:
        """Check a refusal: the transaction ``taken_by`` has taken a lock of ``op``.

        The client has seen the log up to ``mark``.
        """
        self.client_absent(op)
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

        ``replicas`` are those of the committing session. ``written`` is the metadata that were
        written last: the next session counts only the replicas that it names without a closing
        mark. If it is of the committing session, a quorum of these replicas must hold the mark.
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
                if mark - self._replicas[name].verified >= _READ_AFTER_COMMITS:
                    self._compare_replica(name, mark)

    def check_at_rest(self, logs: Mapping[str, list[Record]], checksums: Collection[int]) -> None:
        """Check the end of a run, when nothing changes any more.

        ``logs`` are the contents of the replicas, ``checksums`` those that they calculate.
        """
        contents = list(logs.values())
        sizes = {name: len(content) for name, content in logs.items()}
        if any(content != contents[0] for content in contents):
            raise Violation(Guarantee.SAME, f"replicas differ when quiet: {sizes}")
        if len(set(checksums)) > 1:
            raise Violation(Guarantee.SAME, f"checksums of equal replicas differ: {checksums}")
        records = contents[0]
        if [r.transaction_id for r in records] != list(range(len(records))):
            raise Violation(Guarantee.SAME, "the log has gaps")
        for transaction_id, fed in self._fed.items():
            if transaction_id >= len(records):
                raise Violation(Guarantee.DURABLE, f"{transaction_id} was seen and is lost")
            r = records[transaction_id].req_id
            if (r.client_id, r.generation, r.seq) != fed:
                raise Violation(Guarantee.DURABLE, f"{transaction_id} has changed")
        for transaction_id, data in self._data.items():
            if records[transaction_id].data != data:
                raise Violation(Guarantee.SAME, f"{transaction_id} was read with other data")
        self._check_trusted(records)
        self._check_ops(records)
        ops = [self.ops[record.data] for record in records]
        _check_locks(ops)
        opened_at = frozenset(self._opened.values())
        self.batches.check_at_rest(ops, opened_at)
        for op in self.ops.values():
            if op.refused_by is not None:
                self.batches.check_refusal(op, ops, opened_at)

    def _compare_replica(self, name: str, mark: int) -> None:
        """Compare the part of a replica that was not compared yet, up to ``mark``, with others."""
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

    def _check_without_outcome(self, op: Operation) -> None:
        if op.committed_as is not None or op.absent:
            raise Violation(Guarantee.ONCE, f"{op.name} ended twice")

    def _check_trusted(self, records: list[Record]) -> None:
        """Check that each mark on a disk was written for a log that is a part of the final one."""
        for name, replica in self._replicas.items():
            for transaction_id, req_id in replica.trusted.items():
                if transaction_id >= len(records) or records[transaction_id].req_id != req_id:
                    raise Violation(
                        Guarantee.SAME, f"a mark on {name} covered a different {transaction_id}"
                    )

    def _check_ops(self, records: list[Record]) -> None:
        """Check that each append is in the log at most once, as its client was answered."""
        ids: dict[bytes, int] = {}
        for record in records:
            if record.data in ids:
                name = self.ops[record.data].name
                raise Violation(
                    Guarantee.ONCE,
                    f"{name} is in the log as {ids[record.data]} and {record.transaction_id}",
                )
            ids[record.data] = record.transaction_id
            r = record.req_id
            if (r.client_id, r.generation, r.seq) in self._absent:
                raise Violation(
                    Guarantee.ONCE,
                    f"{r} is {record.transaction_id}, but was answered not in the log",
                )
        for data, op in self.ops.items():
            found = ids.get(data)
            if op.committed_as is not None and found != op.committed_as:
                raise Violation(
                    Guarantee.DURABLE,
                    f"{op.name} was answered committed as {op.committed_as}, but is at {found}",
                )
            if op.absent and found is not None:
                raise Violation(
                    Guarantee.ONCE, f"{op.name} was answered not in the log, but is at {found}"
                )


def _check_locks(log: Sequence[Operation]) -> None:
    """Check that no append is in the log whose lock was taken after its client's mark."""
    taken: dict[LockHash, list[int]] = {}  # The transactions that took each lock, in order.
    for transaction_id, op in enumerate(log):
        assert op.mark is not None
        for lock in op.write_locks + op.read_locks:
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
                    f"{transaction_id} ({op.name}) at mark {op.mark}: lock {lock} was taken by "
                    f"{latest}",
                )
        for lock in op.write_locks + op.append_locks:
            taken.setdefault(lock, []).append(transaction_id)
