"""Record what is known of the log of one replica, to check it after restarts and truncations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.sim.guarantees import Guarantee, Violation
from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import storage as st
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.partitions.partition import StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory


class Replica:
    """The replica of ``partition`` on a storage.

    ``directory`` returns the storage's open directory, None while the storage is down. The disk has
    no faults within ``without_faults``.
    """

    def __init__(
        self,
        name: str,
        partition: int,
        directory: Callable[[], StorageDirectory | None],
        without_faults: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.name = name
        self.partition = partition
        self.verified = -1
        """The id up to which the checker has compared the log with other replicas."""
        self.highest_possible_id = -1
        """The highest id that the log can have after its truncations and appends."""
        self.trusted: dict[int, ReqId] = {}
        """The request id of each transaction to which a mark was written: servers trust the log
        up to a mark, so the final log must have the same transaction."""
        self._acknowledged = -1
        """The last transaction whose append was acknowledged."""
        self._acknowledged_before_loss = -1
        """What ``_acknowledged`` was when the disk was lost; -1 once an append has arrived since.
        """
        self._directory = directory
        self._without_faults = without_faults

    @property
    def log(self) -> PartitionLog | None:
        """The open log, None while the node is down or refuses the partition."""
        opened = self._opened()
        return opened.log if opened is not None else None

    @property
    def session_id(self) -> int:
        """The persisted session, -1 while the node is down or refuses the partition."""
        opened = self._opened()
        return opened.info.session_id if opened is not None else -1

    def record_request(self, request: st.Request) -> None:
        """Record a request that has arrived."""
        if isinstance(request, st.AppendRequest) and request.records.count:
            last_id = request.records.first_id() + request.records.count - 1
            self.highest_possible_id = max(self.highest_possible_id, last_id)
            self._acknowledged_before_loss = -1

    def record_appended(self, request: st.AppendRequest) -> None:
        """Record an append that is about to be acknowledged."""
        if request.records.count:
            self._acknowledged = request.records.first_id() + request.records.count - 1

    def record_mark(self, mark: int) -> None:
        """Record a mark on its disk: servers trust its log up to there from now on."""
        log = self.log
        if log is not None and (last := min(mark, log.max_id)) >= 0:
            try:
                (record,) = self.read(log, last, 1, 1 << 30)
            except PartitionDamaged:
                # A bit has flipped since the record was written, so there is nothing to compare.
                return
            self.trusted[last] = record.req_id

    def read(
        self, log: PartitionLog, first_id: int, max_records: int, max_bytes: int
    ) -> RecordBatch:
        """Read records for a check, as `PartitionLog.read_batch` does.

        A read with the storage engine `wal` may write. Faults of the disk belong to the requests of
        the storage, so that none happens here.
        """
        with self._without_faults():
            return log.read_batch(first_id, max_records, max_bytes)

    def may_have_held(self, transaction_id: int) -> bool:
        """Whether it can have acknowledged a transaction; it may be down or emptied now."""
        log = self.log
        return log is None or max(log.max_id, self._acknowledged_before_loss) >= transaction_id

    def record_truncation(self, last_id: int) -> None:
        """Record a truncation to ``last_id``."""
        self.highest_possible_id = last_id
        self.verified = min(self.verified, last_id)
        self._acknowledged = min(self._acknowledged, last_id)

    def reset(self, highest_possible_id: int) -> None:
        """Record that the disk was replaced, or restored from a snapshot.

        The new disk has transactions up to ``highest_possible_id`` at most.
        """
        self._acknowledged_before_loss = max(self._acknowledged_before_loss, self._acknowledged)
        self._acknowledged = -1
        self.trusted.clear()
        self.verified = -1
        self.highest_possible_id = highest_possible_id

    def check_after_start(self) -> None:
        """Check the log after a start; raises Violation if truncated records are back."""
        last_id = self.log.max_id if self.log is not None else -1
        if last_id > self.highest_possible_id:
            raise Violation(
                Guarantee.DURABLE,
                f"{self.name} finds {last_id}, although all after {self.highest_possible_id} was "
                "truncated",
            )
        self.verified = min(self.verified, last_id)

    def state(self) -> str:
        """Describe the state of the replica, for the report of a violation."""
        log = self.log
        return f"session {self.session_id}, log to {log.max_id}" if log else "serves nothing"

    def _opened(self) -> StoragePartition | None:
        directory = self._directory()
        return directory.partitions.get(self.partition) if directory is not None else None
