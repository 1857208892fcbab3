"""One partition on one storage node in the simulation, and what was proved of its log."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.promises import Promise, Violation
from waltz.protocol import ReqId
from waltz.protocol import storage as st
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.partitions.partition import StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory


class Replica:
    """What a storage node holds of ``partition``; ``directory`` says what it has open now."""

    def __init__(
        self, name: str, partition: int, directory: Callable[[], StorageDirectory | None]
    ) -> None:
        self.name = name
        self.partition = partition
        self.verified = -1
        """Up to where the checker has compared the log with that of others."""
        self.bound = -1
        """The log cannot go further: what was cut, and what came after it."""
        self.vouched: dict[int, ReqId] = {}
        """The last transactions that it held below the marks that were put on its disk."""
        self._acknowledged = -1
        self._forgotten = -1
        """What it had acknowledged when its disk was lost, until it takes part again."""
        self._directory = directory

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

    def asked(self, request: st.Request) -> None:
        """A request has arrived."""
        if isinstance(request, st.AppendRequest) and request.records.count:
            last_id = request.records.first_id() + request.records.count - 1
            self.bound = max(self.bound, last_id)
            self._forgotten = -1

    def appended(self, request: st.AppendRequest) -> None:
        """An append is about to be acknowledged."""
        if request.records.count:
            self._acknowledged = request.records.first_id() + request.records.count - 1

    def marked(self, mark: int) -> None:
        """A mark is on its disk: its log up to there is trusted from now on."""
        log = self.log
        if log is not None and (last := min(mark, log.max_id)) >= 0:
            (record,) = log.read_batch(last, 1, 1 << 30)
            self.vouched[last] = record.req_id

    def may_have_held(self, transaction_id: int) -> bool:
        """Whether it can have acknowledged a transaction rightly: it may be down, or emptied."""
        log = self.log
        return log is None or max(log.max_id, self._forgotten) >= transaction_id

    def cut(self, last_id: int) -> None:
        """The log was truncated, and ends at ``last_id`` now."""
        self.bound = last_id
        self.verified = min(self.verified, last_id)
        self._acknowledged = min(self._acknowledged, last_id)

    def reset(self, bound: int) -> None:
        """The disk is another one now, or as it was long ago."""
        self._forgotten = max(self._forgotten, self._acknowledged)
        self._acknowledged = -1
        self.vouched.clear()
        self.verified = -1
        self.bound = bound

    def started(self) -> None:
        """The node has started and read its disk; raises Violation if what was cut is back."""
        end = self.log.max_id if self.log is not None else -1
        if end > self.bound:
            raise Violation(
                Promise.DURABLE,
                f"{self.name} finds {end}, although all after {self.bound} was cut",
            )
        self.verified = min(self.verified, end)

    def state(self) -> str:
        """Say how far it is, for people."""
        log = self.log
        return f"session {self.session_id}, log to {log.max_id}" if log else "serves nothing"

    def _opened(self) -> StoragePartition | None:
        directory = self._directory()
        return directory.partitions.get(self.partition) if directory is not None else None
