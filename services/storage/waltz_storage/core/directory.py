"""`StorageDirectory`: the control file and the partitions of one storage node. Touches disk.

Each partition may be used by one thread at a time, different ones at the same time.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from waltz.protocol.admin import PartitionState, Switch
from waltz.protocol.records import NO_TRANSACTION
from waltz_storage.core.control import ControlFile, open_control
from waltz_storage.core.control_format import PartitionInfo
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import NotAssigned, RequestRefused, UnknownPartition
from waltz_storage.core.log import LogOptions
from waltz_storage.core.opening import open_log, remove_log
from waltz_storage.core.partition import StoragePartition
from waltz_storage.core.segment import LogIdentity


class StorageDirectory:
    """An open storage directory.

    A partition whose files are damaged is refused, and reported by `refused`; the others go on.
    """

    def __init__(
        self,
        disk: Disk,
        key: uuid.UUID,
        num_partitions: int,
        options: LogOptions,
        meta: Disk | None = None,
    ) -> None:
        """Open it, or begin one in an empty directory; raises DirectoryRefused, DiskFailed.

        The control file is in ``meta``, if given: the directory that belongs to this one.
        """
        self.key = key
        self.num_partitions = num_partitions
        self._disk = disk
        self._options = options
        self._partitions: dict[int, StoragePartition] = {}
        self._refused: dict[int, RequestRefused] = {}
        now_ms = options.now_ms()
        self._control: ControlFile = open_control(disk, key, num_partitions, now_ms, meta)
        self._refused.update(self._control.damaged)
        for partition in range(num_partitions):
            if partition not in self._refused and self.info(partition).assigned:
                try:
                    self._open(partition)
                except RequestRefused as refused:
                    self._refused[partition] = refused

    @property
    def partitions(self) -> Mapping[int, StoragePartition]:
        """The open partitions."""
        return self._partitions

    @property
    def refused(self) -> Mapping[int, RequestRefused]:
        """Partitions that are not served, and why."""
        return self._refused

    def partition(self, partition: int) -> StoragePartition:
        """Return an open partition; raises RequestRefused."""
        found = self._partitions.get(partition)
        if found is None:
            raise self._refused.get(partition) or NotAssigned(partition)
        return found

    def info(self, partition: int) -> PartitionInfo:
        """Return what the control file says; raises UnknownPartition, PartitionDamaged."""
        self._check(partition)
        return self._control.info(partition)

    def sequence(self, partition: int) -> int:
        """Return the number of the control file's last update of a partition."""
        return self._control.sequence(partition)

    def session_info(self, partition: int) -> PartitionInfo:
        """Return the info of an assigned partition, damaged or not; raises RequestRefused."""
        if partition not in self._partitions and partition not in self._refused:
            raise NotAssigned(partition)
        return self._control.info(partition)

    def status(self) -> dict[int, bool]:
        """Return the assigned partitions, and whether each is available."""
        known = [p for p in range(self.num_partitions) if p not in self._control.damaged]
        infos = {partition: self._control.info(partition) for partition in known}
        return {
            partition: info.available and partition not in self._refused
            for partition, info in infos.items()
            if info.assigned
        }

    def states(self) -> tuple[PartitionState, ...]:
        """Return the state of each assigned partition at this moment; any thread may ask.

        One that is refused is switched off, whatever its switches say, and its log is unknown.
        """
        known = (p for p in range(self.num_partitions) if p not in self._control.damaged)
        return tuple(self._state(p) for p in known if self._control.info(p).assigned)

    def _state(self, partition: int) -> PartitionState:
        info = self._control.info(partition)
        opened = self._partitions.get(partition)
        return PartitionState(
            partition,
            info.session_id,
            info.low_water_mark,
            info.local_low_water_mark,
            opened.log.max_id if opened is not None else NO_TRANSACTION,
            opened.log.size_bytes if opened is not None else 0,
            info.readable and opened is not None,
            info.writable and opened is not None,
        )

    def assign(self, partition: int) -> None:
        """Create a partition, or adopt the files it left here; raises RequestRefused."""
        self._check(partition)
        info = self._control.info(partition)
        if partition not in self._partitions:
            self._open(partition)
            self._refused.pop(partition, None)
        self._control.update(partition, info.as_assigned())

    def unassign(self, partition: int, *, delete_files: bool) -> None:
        """Drop a partition, and what the control file knows of it; raises UnknownPartition.

        The control entry goes first: files without an entry are unknown, an entry whose files are
        gone would vouch for an empty log. Waltz 0.13.2 resets the entry even if it then fails
        because the partition is not here.
        """
        self._check(partition)
        here = partition in self._partitions or partition in self._refused
        self._control.reset(partition)
        if not here:
            raise UnknownPartition(f"partition {partition} is not assigned")
        opened = self._partitions.pop(partition, None)
        self._refused.pop(partition, None)
        if opened is not None and delete_files:
            opened.log.remove()
        elif opened is not None:
            opened.log.close()
        elif delete_files:
            remove_log(self._disk, self._identity(partition))

    def set_available(self, partition: int, available: bool) -> None:
        """Set both switches of a partition; raises UnknownPartition, PartitionDamaged."""
        self._control.update(partition, self.info(partition).as_available(available))

    def set_switch(self, partition: int, switch: Switch, on: bool) -> None:
        """Set one switch of a partition; raises UnknownPartition, PartitionDamaged."""
        self._control.update(partition, self.info(partition).with_switch(switch, on))

    def check_known(self, partitions: Sequence[int]) -> None:
        """Check that all ids are within the cluster's; raises UnknownPartition."""
        for partition in partitions:
            self._check(partition)

    def close(self) -> None:
        """Stop cleanly: every file trimmed and durable; raises DiskFailed."""
        for partition in self._partitions.values():
            partition.log.close()
        self._partitions.clear()
        self._control.close()

    def _open(self, partition: int) -> None:
        info = self._control.info(partition)
        identity = self._identity(partition)
        log = open_log(self._disk, identity, self._options, info.local_low_water_mark)
        self._partitions[partition] = StoragePartition(partition, log, self._control)

    def _identity(self, partition: int) -> LogIdentity:
        return LogIdentity(self.key, partition, str(partition))

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self.num_partitions:
            raise UnknownPartition(f"partition {partition} is outside 0..{self.num_partitions - 1}")
