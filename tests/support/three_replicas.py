"""Three replicas of a partition on disks in memory, recovered by the server's core.

A `Trio` opens store sessions as a server does: `SessionRecovery` decides, and the code of the
storages executes each step. It shows what a fault of one disk does to acknowledged transactions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from waltz.metadata.core.formats import PartitionMetadata
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, Truncate
from waltz_server.core.replication.session_recovery import SessionRecovery
from waltz_storage.core.errors import DirectoryRefused, RequestRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.partition import StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID(int=3)
P = 1
_OPTIONS = LogOptions(lambda: 7, segment_threshold=260, allocate_bytes=0)
_VERSION = 1


@dataclass(slots=True)
class Volumes:
    """The disks of one storage; ``meta`` is None if it has only one."""

    data: MemoryDisk
    meta: MemoryDisk | None

    def copy(self) -> Volumes:
        """Return the disks as the next process finds them."""
        return Volumes(self.data.restarted(), self.meta.restarted() if self.meta else None)

    def open(self) -> StorageDirectory:
        """Start the storage; raises DirectoryRefused."""
        return StorageDirectory(self.data, KEY, 2, _OPTIONS, self.meta)


@dataclass(slots=True)
class Trio:
    """Three storages by name, the partition's metadata, and the storages that run."""

    volumes: dict[str, Volumes]
    metadata: PartitionMetadata = field(default_factory=lambda: PartitionMetadata(1, -1, {}))
    running: dict[str, StorageDirectory] = field(default_factory=dict)
    session: int = 0
    committed: int = -1
    """The last id that the server of the next session knows to be committed."""
    waiting_for: str = ""
    """Why the last session did not open."""

    @classmethod
    def create(cls, *, two_volumes: bool) -> Trio:
        """Return new storages that run, with the partition assigned to each."""
        trio = cls(
            {
                name: Volumes(MemoryDisk(), MemoryDisk() if two_volumes else None)
                for name in ("a", "b", "c")
            }
        )
        trio.start("abc")
        for directory in trio.running.values():
            directory.assign(P)
        return trio

    def copy(self) -> Trio:
        """Return the same storages after the death of all processes."""
        volumes = {name: each.copy() for name, each in self.volumes.items()}
        return Trio(volumes, self.metadata, {}, self.session)

    def start(self, names: Iterable[str]) -> None:
        """Start storages; one that refuses its directory stays down."""
        for name in names:
            try:
                self.running[name] = self.volumes[name].open()
            except DirectoryRefused:
                continue

    def kill(self, name: str) -> None:
        """End the process of a storage."""
        del self.running[name]
        self.volumes[name] = self.volumes[name].copy()

    def replica(self, name: str) -> StoragePartition:
        """Return the replica of a storage that runs; raises RequestRefused."""
        return self.running[name].partition(P)

    def append(self, names: Iterable[str], batch: RecordBatch) -> None:
        """Append to replicas, as a server in its session does."""
        for name in names:
            self.replica(name).log.append(batch)

    def open_session(self) -> frozenset[str]:
        """Begin a store session with the storages that run; return its members, none if it waits.

        The metadata change only if the session opens.
        """
        self.session += 1
        names = tuple(self.volumes)
        recovery = SessionRecovery(
            self.session, 1, names, self.metadata.replicas, 20, self.committed
        )
        for name in self.running:
            try:
                info = self._ask(name, storage.LastSessionInfoRequest(self.session, 0, P))
            except RequestRefused:
                continue
            recovery.introduced(
                name, info.last_session_id, info.low_water_mark, info.local_low_water_mark
            )
        while due := recovery.take_steps():
            for name, step in due:
                self._perform(recovery, name, step)
        members = recovery.recovered()
        self.waiting_for = recovery.waiting_for()
        if len(members) < recovery.quorum:
            return frozenset()
        self.metadata = recovery.metadata()
        return members

    def content(self, names: Iterable[str]) -> dict[int, bytes]:
        """Return the records that at least one of the replicas can read, by id."""
        found: dict[int, bytes] = {}
        for name in names:
            replica = self.replica(name)
            for transaction_id in range(replica.log.next_id):
                try:
                    found[transaction_id] = bytes(replica.records(transaction_id, 1).wire)
                except RequestRefused:
                    continue
        return found

    def _perform(self, recovery: SessionRecovery, name: str, step: Step) -> None:
        session = self.session
        try:
            match step:
                case Measure():
                    request = storage.MaxTransactionIdRequest(session, 0, P)
                    recovery.measured(name, self._ask(name, request).transaction_id)
                case Truncate(to, below):
                    cut: storage.Request = storage.TruncateRequest(session, 0, P, to)
                    if below is not None:
                        cut = storage.TruncateBelowMarkRequest(session, 0, P, to, below)
                    recovery.cut(name, self._ask(name, cut).transaction_id)
                case Mark(mark):
                    self._ask(name, storage.SetLowWaterMarkRequest(session, 0, P, mark))
                    recovery.marked(name)
                case Copy(source, first, count):
                    try:
                        reading = storage.RecordListRequest(session, 0, P, first, count)
                        records = self._ask(source, reading).records
                    except RequestRefused:
                        recovery.not_copied(name, source)
                        return
                    self.replica(name).log.append(records)
                    recovery.copied(name, self.replica(name).log.max_id)
        except RequestRefused:
            recovery.failed(name)

    def _ask(self, name: str, request: storage.Request) -> Any:
        return self.replica(name).handle(request, _VERSION)


def records(first_id: int, count: int, text: str) -> RecordBatch:
    """Return records whose content and request ids differ for each ``text``."""
    client = int.from_bytes(text.encode()[:4], "big")
    return RecordBatch.of(
        Record(n, ReqId(client, 1, P, n), 0, f"{text}{n}".encode(), checksum(f"{text}{n}".encode()))
        for n in range(first_id, first_id + count)
    )
