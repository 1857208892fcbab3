"""Record which disks have lost acknowledged records, and how many more may lose some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_storage import SimStorage
from waltz.metadata.core.formats import UNRESOLVED


class Damage:
    """Counts damaged disks: each partition must keep a quorum of intact replicas."""

    def __init__(
        self, storages: Mapping[str, SimStorage], partitions: Sequence[NodesPartition]
    ) -> None:
        self._storages = storages
        self._partitions = partitions
        self._forgetful: set[str] = set()
        self._rotten: set[str] = set()
        self._snapshots: dict[str, list[int]] = {}
        """The sessions of a storage's replicas when the snapshot of its disk was taken."""

    def may(self, name: str) -> bool:
        """Whether one more disk may be damaged."""
        return all(
            self.intact(partition, set(partition.metadata.replicas), also=name)
            and partition.metadata.value.replicas
            for partition in self._partitions
        )

    def intact(self, partition: NodesPartition, assigned: set[str], *, also: str = "") -> bool:
        """Whether enough intact replicas would stay if ``assigned`` were a partition's replicas.

        A quorum is needed of the replicas assigned now, of those that the metadata names, and of
        those that a server may still make the metadata name; a replica that is not in ``assigned``
        does not count. ``also`` counts as damaged.
        """
        damaged = self._forgetful | self._rotten | {also}
        groups = (
            set(partition.metadata.value.replicas),
            set(partition.metadata.replicas),
            *partition.known_assignments(),
        )
        return all(
            not group or len((group & assigned) - damaged) >= len(group) // 2 + 1
            for group in groups
        )

    def count_intact(self) -> None:
        """Count replicas as intact again that took part in a later session."""
        self._forgetful = {n for n in self._forgetful if not all(self._trusted(n))}

    def empty(self, storage: SimStorage) -> None:
        """Empty a disk; only while its node is down."""
        storage.wipe()
        self._rotten.discard(storage.name)
        self._forgetful.add(storage.name)

    def remember(self, storage: SimStorage, sessions: list[int]) -> None:
        """Take a snapshot of a disk whose replicas are of ``sessions``; only while down."""
        storage.take_snapshot()
        self._snapshots[storage.name] = sessions

    def is_older(self, storage: SimStorage) -> bool:
        """Whether the snapshot was taken before its replicas joined their last sessions.

        Only then do the metadata show that the restored disk lacks records.
        """
        sessions = self._snapshots.get(storage.name)
        if sessions is None:
            return False
        for partition, taken in zip(self._partitions, sessions, strict=True):
            entry = partition.metadata.value.replicas.get(storage.name)
            if entry is None and storage.name not in partition.metadata.replicas:
                continue
            if entry is None or taken >= entry.session_id:
                return False
        return True

    def set_back(self, storage: SimStorage) -> None:
        """Restore the snapshot of a disk; only while its node is down."""
        storage.restore_snapshot()
        self._forgetful.add(storage.name)

    def rot(self, storage: SimStorage) -> None:
        """Flip a bit of a disk."""
        storage.rot()
        self._rotten.add(storage.name)

    def _trusted(self, name: str) -> list[bool]:
        """For each partition, whether the last session's metadata counts this replica."""
        trusted = []
        for partition in self._partitions:
            value = partition.metadata.value
            entry = value.replicas.get(name)
            session_id = self._storages[name].replicas[partition.partition].session_id
            trusted.append(
                entry is None
                or (
                    entry.closing_mark == UNRESOLVED
                    and entry.session_id == value.session_id == session_id
                )
            )
        return trusted
