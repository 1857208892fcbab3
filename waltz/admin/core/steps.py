"""The steps that change replicas and storages, and the base class of orders. Pure.

An `Order` names a goal. Its plan, the method `next_step`, maps an observation to the next step, or
to `Wait`, `Done` or `Refuse`. A step is idempotent and may be interrupted at any instruction: the
next observation shows what the step did. The text of a step (``str(step)``) is shown on the
terminal and in events of Kubernetes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz.protocol.notation import format_partitions


class SwitchKind(StrEnum):
    """The two switches of a replica. Version 0 of the admin protocol can only set both together."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class CreateReplicas:
    """Create replicas of ``partitions`` at ``storage``; files that are on its disk are used."""

    storage: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        replicas = "a replica" if len(self.partitions) == 1 else "replicas"
        return f"storage {self.storage} creates {replicas} of {partitions_text(self.partitions)}"


@dataclass(frozen=True, slots=True)
class SwitchOff:
    """Switch reading and writing of ``partitions`` off at ``storage``, by one request."""

    storage: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        verb = "is" if len(self.partitions) == 1 else "are"
        return f"{partitions_text(self.partitions)} {verb} switched off at storage {self.storage}"


@dataclass(frozen=True, slots=True)
class SwitchOn:
    """Switch reading and writing of ``partitions`` on at ``storage``, by one request."""

    storage: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        verb = "is" if len(self.partitions) == 1 else "are"
        return f"{partitions_text(self.partitions)} {verb} switched on at storage {self.storage}"


@dataclass(frozen=True, slots=True)
class SetSwitch:
    """Set one of the two switches of ``partitions`` at ``storage``.

    A storage of Waltz 0.13.2 can only set both together.
    """

    storage: str
    partitions: tuple[int, ...]
    kind: SwitchKind
    on: bool

    def __str__(self) -> str:
        what = "reading" if self.kind is SwitchKind.READ else "writing"
        state = "on" if self.on else "off"
        partitions = partitions_text(self.partitions)
        return f"{what} of {partitions} is switched {state} at storage {self.storage}"


@dataclass(frozen=True, slots=True)
class CopyReplica:
    """Copy ``partition`` from ``source`` to ``destination``, where it must be switched off.

    The copy ends where the source's present session began. The destination is first cut to its
    low-water mark. Without ``overwrite``, a destination that already reaches the end of the copy is
    not changed. With ``overwrite`` it is cut, too, and loses what it has acknowledged after that
    end. So a plan sets ``overwrite`` only if no vote on the committed transactions counts the
    replica (`core.replica_filling`).
    """

    source: str
    destination: str
    partition: int
    overwrite: bool = True

    def __str__(self) -> str:
        return f"partition {self.partition} is copied from {self.source} to {self.destination}"


@dataclass(frozen=True, slots=True)
class RepairRecords:
    """Replace the records ``first_id`` to ``last_id`` at ``destination`` by those of ``source``.

    The destination writes only records that are damaged there. It refuses records that do not fit
    exactly between the undamaged records of its own log. The partition stays in use.
    """

    source: str
    destination: str
    partition: int
    first_id: int
    last_id: int

    def __str__(self) -> str:
        records = records_text(self.first_id, self.last_id)
        verb = "is" if self.first_id == self.last_id else "are"
        return (
            f"{records} of partition {self.partition} {verb} repaired at storage "
            f"{self.destination} from storage {self.source}"
        )


@dataclass(frozen=True, slots=True)
class EqualReplicas:
    """The condition that the replicas of ``partition`` on ``storages`` are equal.

    A comparison of range checksums up to the start of the present store session proves it. A
    replica that is not healthy is compared up to its own low-water mark. Without the condition, a
    change could drop the only replica with the right records, or add one with wrong records.
    """

    partition: int
    storages: frozenset[str]


@dataclass(frozen=True, slots=True)
class ChangeAssignment:
    """Change the assignment of partitions to storages in ZooKeeper, by one compare-and-set.

    The conditions ``proofs`` are proven directly before the change. If one fails, nothing changes.
    """

    changes: tuple[ReplicaChange, ...]
    proofs: tuple[EqualReplicas, ...] = ()

    def __str__(self) -> str:
        return "ZooKeeper assigns " + "; ".join(
            f"partition {change.partition} to {', '.join(sorted(change.wanted))}"
            for change in self.changes
        )


@dataclass(frozen=True, slots=True)
class DropReplicas:
    """Drop the replicas of ``partitions`` at ``storage``, and their files if ``delete_files``.

    With ``final``, the order is complete after this step without another observation. A plan sets
    it if an observation could not show the effect: a storage does not list a partition whose entry
    in the control file is damaged. The step then succeeds also if the storage has nothing of a
    partition.
    """

    storage: str
    partitions: tuple[int, ...]
    delete_files: bool
    final: bool = False

    def __str__(self) -> str:
        files = "deletes" if self.delete_files else "keeps"
        whose = "its" if len(self.partitions) == 1 else "their"
        partitions = partitions_text(self.partitions)
        return f"storage {self.storage} drops {partitions} and {files} {whose} files"


@dataclass(frozen=True, slots=True)
class RegisterStorage:
    """Add a storage, without partitions, to the storage maps in ZooKeeper."""

    storage: str
    group: int
    admin_port: int

    def __str__(self) -> str:
        return f"storage {self.storage} is registered in group {self.group}"


@dataclass(frozen=True, slots=True)
class UnregisterStorage:
    """Remove a storage that has no partitions from the storage maps in ZooKeeper."""

    storage: str

    def __str__(self) -> str:
        return f"storage {self.storage} is unregistered"


@dataclass(frozen=True, slots=True)
class Wait:
    """No step can be taken now; ``reason`` is what prevents it, and may change by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The goal is reached, as the observation shows."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The goal cannot be reached from the observed state, and waiting does not change that."""

    reason: str


StorageStep = CreateReplicas | SwitchOff | SwitchOn | SetSwitch | DropReplicas
"""Steps that one request to a storage's admin port performs."""

MetadataStep = ChangeAssignment | RegisterStorage | UnregisterStorage
"""Steps that change the storage maps in ZooKeeper."""

Step = StorageStep | MetadataStep | CopyReplica | RepairRecords
Next = Step | Wait | Done | Refuse
"""What a plan decides for one observation."""


class Order(ABC):
    """A goal about replicas or storages, and the plan that leads to it."""

    __slots__ = ()

    @property
    @abstractmethod
    def scope(self) -> ObservationScope:
        """The scope: what must be observed for the plan."""

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return why the order must not begin, None if it may begin.

        `carry_out` and `forecast` call this once, before the first step.
        """
        return None

    @abstractmethod
    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""


def partitions_text(partitions: Iterable[int]) -> str:
    """Return ``partition 4`` or ``partitions 0-3,5``."""
    ids = tuple(partitions)
    return f"partition{'' if len(ids) == 1 else 's'} {format_partitions(ids)}"


def records_text(first_id: int, last_id: int) -> str:
    """Return ``record 4`` or ``records 4-6``."""
    return f"record {first_id}" if first_id == last_id else f"records {first_id}-{last_id}"
