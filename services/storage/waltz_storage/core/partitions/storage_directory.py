"""Pure. `StorageDirectory`: the control file and the partitions of one storage node.

It opens, assigns and unassigns partitions, and sets their switches. The engine and the admin port
find the open partitions here. If the setting ``storage.engine`` is ``wal``, the segment files are
changed through a write-ahead log (`WriteAheadLog`).

Only one thread at a time may use a partition; several threads may use different partitions. Files
are used only through the `Disk` that the caller passes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from waltz.protocol.admin import PartitionState, Switch
from waltz.protocol.records import NO_TRANSACTION
from waltz_storage.core.control.control_file import ControlFile, open_control
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.disk import Disk, changing
from waltz_storage.core.engine.rounds import RoundWriter
from waltz_storage.core.errors import (
    NotAssigned,
    PartitionDamaged,
    RequestRefused,
    UnknownPartition,
)
from waltz_storage.core.log.flushed_end import FlushedEnd
from waltz_storage.core.log.log_opening import open_log, remove_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.partitions.known_log import known_log
from waltz_storage.core.partitions.partition import StoragePartition
from waltz_storage.core.wal.wal_start import Refuse


@dataclass(frozen=True, slots=True)
class WalFigures:
    """The figures of a write-ahead log for the metrics; all are 0 without a log.

    ``fill`` is the share of the log that a replay would need, from 0 to 1. ``checkpoint_lag`` is
    the age in seconds of the oldest transaction that no checkpoint has passed. ``replay_seconds``
    is how long the replay at the start has taken.
    """

    fill: float = 0.0
    checkpoint_lag: float = 0.0
    replay_seconds: float = 0.0


class WriteAheadLog(Protocol):
    """The write-ahead log of a storage directory, which covers its segment files."""

    def open(self, disk: Disk, key: uuid.UUID, control: ControlFile, refuse: Refuse) -> Disk:
        """Replay the log; return the disk to use for the segment files instead of ``disk``.

        Marks the control file, so that nothing uses the segments without the log
        (`ControlFile.mark_logged`). Calls ``refuse`` with the partitions whose durable records the
        replay found damaged. Raises DirectoryRefused, OSError, NoSpace, DiskFailed.
        """

    @property
    def round_writer(self) -> RoundWriter:
        """The writer of rounds of appends, after `open`."""

    @property
    def figures(self) -> WalFigures:
        """The figures for the metrics, after `open`. Thread-safe."""

    def close(self) -> None:
        """Write all changes to the segment files, so that they need the log no more.

        Raises DiskFailed.
        """

    def abandon(self) -> None:
        """Close all files without a change, as after a crash, and release the directory.

        An `open` that fails has already done the same.
        """

    def release(self) -> None:
        """Release the directory of the log.

        Call this after the storage directory was marked as *plain*, which says that its segment
        files are complete without the log (`ControlFile.mark_plain`).
        """


class StorageDirectory:
    """An open storage directory.

    An assigned partition that cannot be opened, for example because its files are damaged, is in
    `refused` and is not served. The other assigned partitions are in `partitions` and are served.
    """

    def __init__(
        self,
        disk: Disk,
        key: uuid.UUID,
        num_partitions: int,
        options: LogOptions,
        meta: Disk | None = None,
        wal: WriteAheadLog | None = None,
    ) -> None:
        """Open a storage directory, or initialize an empty one.

        ``disk`` is the directory of the partitions, and ``key`` the key of the cluster. ``meta`` is
        the directory of the control file, None if that is ``disk`` (see
        `core.control.directory_pair`). ``wal`` is the write-ahead log, None to change the segment
        files without one. Raises DirectoryRefused, NoSpace, DiskFailed.
        """
        self.key = key
        self.num_partitions = num_partitions
        self._disk = disk
        self._options = options
        self._partitions: dict[int, StoragePartition] = {}
        self._refused: dict[int, RequestRefused] = {}
        self._unmarked: list[int] = []
        self._wal = wal
        self._control: ControlFile = open_control(
            disk, key, num_partitions, options.now_ms(), meta, can_replay=wal is not None
        )
        try:
            self._open(disk)
        except BaseException:
            self._abandon()
            raise

    def _open(self, disk: Disk) -> None:
        """Replay the log, if there is one, and open the assigned partitions.

        Raises DirectoryRefused, NoSpace, DiskFailed.
        """
        self._refused.update(self._control.damaged)
        wal = self._wal
        if wal is not None:
            with changing("opening of the write-ahead log"):
                self._disk = wal.open(disk, self.key, self._control, self._refuse)
            # The log divides large writes. After a crash a part of such a write may end within a
            # block of the disk, so a repair checks first that all its blocks can be read.
            self._options = replace(self._options, divided_writes=True)
        self._open_assigned()
        # The opening of the logs may have raised their marks, which is not durable yet.
        self.flush_marks()

    @property
    def round_writer(self) -> RoundWriter | None:
        """The writer of rounds that uses the write-ahead log, None without such a log."""
        return self._wal.round_writer if self._wal is not None else None

    @property
    def wal_figures(self) -> WalFigures:
        """The figures of the write-ahead log. Thread-safe."""
        return self._wal.figures if self._wal is not None else WalFigures()

    @property
    def partitions(self) -> Mapping[int, StoragePartition]:
        """The open partitions."""
        return self._partitions

    @property
    def refused(self) -> Mapping[int, RequestRefused]:
        """The partitions that are not served, each with the reason."""
        return self._refused

    @property
    def unmarked(self) -> Sequence[int]:
        """The assigned partitions that had no flushed mark (`flushed_end`) at the opening.

        Waltz 0.13.2 used the directory last, or the marks were lost. Of these logs, fewer records
        were known to be flushed: those up to the local low-water mark, or up to the last checkpoint
        of the index if that is higher. Invalid records after them were taken for an interrupted
        write (`log_recovery`).
        """
        return self._unmarked

    def partition(self, partition: int) -> StoragePartition:
        """Return an open partition; raises RequestRefused."""
        open_partition = self._partitions.get(partition)
        if open_partition is None:
            refused = self._refused.get(partition)
            raise NotAssigned(partition) if refused is None else refused.new_instance()
        return open_partition

    def info(self, partition: int) -> PartitionInfo:
        """Return a partition's persisted info; raises UnknownPartition, PartitionDamaged."""
        self._check_exists(partition)
        return self._control.info(partition)

    def sequence(self, partition: int) -> int:
        """Return how often a partition's entry in the control file was changed, for a metric.

        Raises PartitionDamaged.
        """
        return self._control.sequence(partition)

    def session_info(self, partition: int) -> PartitionInfo:
        """Return the info of an assigned partition, even if its log is damaged.

        Raises RequestRefused.
        """
        if partition not in self._partitions and partition not in self._refused:
            raise NotAssigned(partition)
        return self._control.info(partition)

    def status(self) -> dict[int, bool]:
        """Return for each assigned partition whether it is served and both switches are on.

        A partition whose control entry is damaged is left out, because it may not be assigned.
        """
        infos = {partition: self._control.info(partition) for partition in self._undamaged()}
        return {
            partition: info.available and partition not in self._refused
            for partition, info in infos.items()
            if info.assigned
        }

    def states(self) -> tuple[PartitionState, ...]:
        """Return the state of each assigned partition at this moment. Thread-safe.

        A refused partition is reported with both switches off and with an empty log. A partition
        whose control entry is damaged is not reported, because it may not be assigned.
        """
        return tuple(self._state(p) for p in self._undamaged() if self._control.info(p).assigned)

    def _state(self, partition: int) -> PartitionState:
        """Return the state of an assigned partition whose control entry is not damaged."""
        info = self._control.info(partition)
        open_partition = self._partitions.get(partition)
        return PartitionState(
            partition,
            info.session_id,
            info.low_water_mark,
            info.local_low_water_mark,
            open_partition.log.max_id if open_partition is not None else NO_TRANSACTION,
            open_partition.log.size_bytes if open_partition is not None else 0,
            info.readable and open_partition is not None,
            info.writable and open_partition is not None,
        )

    def assign(self, partition: int) -> None:
        """Create a partition, or open its files if they exist already.

        Raises UnknownPartition, RequestRefused, DiskFailed.
        """
        self._check_exists(partition)
        info = self._control.info(partition)
        # The files are made before the partition counts as assigned: an assigned partition that has
        # lost its files is refused (see `known_log`).
        if partition not in self._partitions:
            self._open_partition(partition)
            self._refused.pop(partition, None)
        self._control.update(partition, info.as_assigned())

    def unassign(self, partition: int, *, delete_files: bool) -> None:
        """Close a partition and reset its entry in the control file.

        The control entry is reset before the files are removed. After a crash in between, the files
        have no entry and are ignored until the partition is assigned again. In the other order, a
        crash would leave an assigned partition without files, which a start refuses as damaged.

        With ``delete_files``, the files of a partition that is not assigned are removed, too: a
        crash may have left them, and damaged files would prevent a new assignment. The entry of
        such a partition is reset in any case, as in Waltz 0.13.2. Raises UnknownPartition after
        that, unless a file was removed. Raises NoSpace, DiskFailed.
        """
        self._check_exists(partition)
        is_assigned = partition in self._partitions or partition in self._refused
        self._control.reset(partition)
        if not is_assigned:
            if delete_files and remove_log(self._disk, self._identity(partition)):
                return
            raise UnknownPartition(f"partition {partition} is not assigned")
        open_partition = self._partitions.pop(partition, None)
        self._refused.pop(partition, None)
        if open_partition is not None and delete_files:
            open_partition.log.remove()
        elif open_partition is not None:
            open_partition.log.close()
        elif delete_files:
            remove_log(self._disk, self._identity(partition))

    def set_available(self, partition: int, available: bool) -> None:
        """Set both switches; raises UnknownPartition, RequestRefused, DiskFailed."""
        self._check_switch(partition, available)
        self._control.update(partition, self.info(partition).as_available(available))

    def set_switch(self, partition: int, switch: Switch, on: bool) -> None:
        """Set one switch; raises UnknownPartition, RequestRefused, DiskFailed."""
        self._check_switch(partition, on)
        self._control.update(partition, self.info(partition).with_switch(switch, on))

    def _check_switch(self, partition: int, on: bool) -> None:
        """Raise PartitionDamaged if a damaged partition is to be switched ``on``.

        A damaged replica is replaced first; the error says how.
        """
        refused = self._refused.get(partition)
        if on and isinstance(refused, PartitionDamaged):
            raise refused.new_instance()

    def check_known(self, partitions: Sequence[int]) -> None:
        """Check that the cluster has all ``partitions``; raises UnknownPartition."""
        for partition in partitions:
            self._check_exists(partition)

    def flush_marks(self) -> None:
        """Make the flushed marks durable. Thread-safe. Raises DiskFailed."""
        self._control.flushed_marks.flush()

    def close(self) -> None:
        """Close all files cleanly: trimmed and durable; raises DiskFailed."""
        for partition in self._partitions.values():
            partition.log.close()
        self._partitions.clear()
        if self._wal is not None:
            # The directory is marked as plain only when no segment needs the log any more. Until
            # then, no other storage may take the directory of the log.
            self._wal.close()
            self._control.mark_plain()
            self._wal.release()
        self._control.close()

    def _abandon(self) -> None:
        """Close all files without a change, after an opening that failed."""
        for partition in self._partitions.values():
            partition.log.release()
        if self._wal is not None:
            self._wal.abandon()
        self._control.abandon()

    def _undamaged(self) -> list[int]:
        """Return the partitions whose control entries are not damaged."""
        damaged = self._control.damaged
        return [partition for partition in range(self.num_partitions) if partition not in damaged]

    def _refuse(self, damaged: Mapping[int, PartitionDamaged]) -> None:
        """Refuse partitions whose durable records the replay found damaged, now and at each start.

        The write-ahead log is empty after its replay. So at the next start, only the flushed mark
        shows that the records are damaged. Without that mark, the start would take the records for
        an interrupted write, cut them off and serve the partition. Raises NoSpace, DiskFailed.
        """
        for partition, why in damaged.items():
            if partition not in self._refused and self._control.info(partition).assigned:
                self._refused[partition] = why
                # A mark counts only beside the checksum of the partition's control entry. The next
                # line notes that checksum, and `write_never_reached` writes it with the mark.
                self._load_mark(partition)
                self._control.flushed_marks.write_never_reached(partition)

    def _open_assigned(self) -> None:
        """Open each assigned partition that is not refused yet; refuse it if the opening fails."""
        for partition in range(self.num_partitions):
            if partition in self._refused or not self.info(partition).assigned:
                continue
            if self._load_mark(partition) is None:
                self._unmarked.append(partition)
            try:
                self._open_partition(partition)
            except RequestRefused as refused:
                self._refused[partition] = refused.new_instance()

    def _open_partition(self, partition: int) -> None:
        """Open the files of a partition, or create them; raises RequestRefused, DiskFailed."""
        control = self._control
        info = control.info(partition)
        flushed = self._load_mark(partition)
        mark = control.flushed_marks.mark_of(partition)
        log = open_log(
            self._disk, self._identity(partition), self._options, known_log(info, flushed), mark
        )
        # The opening has flushed all records. So the mark does not get ahead of the log.
        mark.raise_to(log.end)
        self._partitions[partition] = StoragePartition(partition, log, control)

    def _load_mark(self, partition: int) -> FlushedEnd | None:
        """Load a partition's flushed mark (`FlushedMarks.load`); return it, None if not known."""
        control = self._control
        return control.flushed_marks.load(partition, control.checksum(partition))

    def _identity(self, partition: int) -> LogIdentity:
        return LogIdentity(self.key, partition, str(partition))

    def _check_exists(self, partition: int) -> None:
        if not 0 <= partition < self.num_partitions:
            raise UnknownPartition(f"partition {partition} is outside 0..{self.num_partitions - 1}")
