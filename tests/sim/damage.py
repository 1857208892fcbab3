"""Record which disks have lost acknowledged records, and how many more may lose some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_storage import SimStorage
from waltz.metadata.core.formats import UNRESOLVED

_CHECK_BYTES = 1 << 20


class Damage:
    """The damaged disks of a cluster. Each partition must keep a quorum of intact replicas."""

    def __init__(
        self, storages: Mapping[str, SimStorage], partitions: Sequence[NodesPartition]
    ) -> None:
        self._storages = storages
        self._partitions = partitions
        self._lost_records: set[str] = set()
        """The storages whose disks were emptied or restored from a snapshot."""
        self._rotten: set[str] = set()
        """The storages on whose disks a bit was flipped."""
        self._snapshots: dict[str, list[int]] = {}
        """The sessions of a storage's replicas when the snapshot of its disk was taken."""

    def may_damage(self, name: str) -> bool:
        """Whether each partition would keep a quorum if the disk ``name`` were damaged, too."""
        return all(
            partition.view.metadata.replicas
            and self.keeps_quorum(partition, set(partition.view.assigned), also_damaged=name)
            for partition in self._partitions
        )

    def may_replace(self, name: str) -> bool:
        """Whether the disk ``name`` may be emptied after all faults, although others are damaged.

        In a partition whose last session has opened without the storage, the session's replicas
        have all committed records.
        """
        return all(
            not _is_member(partition, name)
            or self.keeps_quorum(partition, set(partition.view.assigned), also_damaged=name)
            for partition in self._partitions
        )

    def keeps_quorum(
        self, partition: NodesPartition, assigned: set[str], *, also_damaged: str = ""
    ) -> bool:
        """Whether enough intact replicas would stay if ``assigned`` were a partition's replicas.

        A quorum is needed of the replicas assigned now, of those that the metadata names, and of
        those that a server may still make the metadata name; a replica that is not in ``assigned``
        does not count.
        """
        damaged = self._lost_records | self._rotten | {also_damaged}
        groups = (
            set(partition.view.metadata.replicas),
            set(partition.view.assigned),
            *partition.known_assignments(),
        )
        return all(
            not group or len((group & assigned) - damaged) >= len(group) // 2 + 1
            for group in groups
        )

    def count_recovered_as_intact(self) -> None:
        """Count disks as intact again whose replicas took part in a session since their damage.

        The session has copied the lost records to them. A flipped bit stays.
        """
        self._lost_records = {n for n in self._lost_records if not self._takes_part_everywhere(n)}

    def count_repaired_as_intact(self) -> None:
        """Count disks as intact again of which every record is undamaged; only after all faults.

        A flipped bit in the header of a file may be left, which only a further start would notice.
        """
        self._rotten = {name for name in self._rotten if not _is_sound(self._storages[name])}

    def empty(self, storage: SimStorage) -> None:
        """Empty a disk; only while its node is down."""
        storage.wipe()
        self._rotten.discard(storage.name)
        self._lost_records.add(storage.name)

    def take_snapshot(self, storage: SimStorage, sessions: list[int]) -> None:
        """Take a snapshot of a disk whose replicas are of ``sessions``; only while down."""
        storage.take_snapshot()
        self._snapshots[storage.name] = sessions

    def snapshot_is_older(self, storage: SimStorage) -> bool:
        """Whether the snapshot was taken before its replicas joined their last sessions.

        Only then do the metadata show that the restored disk lacks records.
        """
        sessions = self._snapshots.get(storage.name)
        if sessions is None:
            return False
        for partition, session_then in zip(self._partitions, sessions, strict=True):
            entry = partition.view.metadata.replicas.get(storage.name)
            if entry is None and storage.name not in partition.view.assigned:
                continue
            if entry is None or session_then >= entry.session_id:
                return False
        return True

    def restore_snapshot(self, storage: SimStorage) -> None:
        """Restore the snapshot of a disk; only while its node is down."""
        storage.restore_snapshot()
        self._lost_records.add(storage.name)

    def rot(self, storage: SimStorage) -> None:
        """Flip a bit of a disk."""
        storage.rot()
        self._rotten.add(storage.name)

    def _takes_part_everywhere(self, name: str) -> bool:
        """Whether a storage takes part in the last session of each partition that names it."""
        replicas = self._storages[name].replicas
        return all(
            name not in partition.view.metadata.replicas
            or (
                _is_member(partition, name)
                and partition.view.metadata.session_id == replicas[partition.partition].session_id
            )
            for partition in self._partitions
        )


def _is_member(partition: NodesPartition, name: str) -> bool:
    """Whether the metadata name a storage as a replica of the last session that opened."""
    metadata = partition.view.metadata
    entry = metadata.replicas.get(name)
    return (
        entry is not None
        and entry.closing_mark == UNRESOLVED
        and entry.session_id == metadata.session_id
    )


def _is_sound(storage: SimStorage) -> bool:
    """Whether a storage serves all its partitions, and each record of them is undamaged."""
    if not storage.up:
        return False
    for replica in storage.replicas:
        log, next_id = replica.log, 0
        if log is None:
            return False
        while next_id < log.next_id:
            checked = log.check(next_id, _CHECK_BYTES)
            if checked.damaged:
                return False
            next_id = checked.next_id
    return True
