"""What operations on replicas do, one step at a time: the steps, and other answers of plans. Pure.

An `Order` makes one of these of what was observed. Each step may be done twice, and may
be broken off anywhere: what was observed afterwards says how to go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from waltz.admin.core.replicas import Observed, Scope
from waltz.metadata.core.storage_maps import ReplicaChange


@dataclass(frozen=True, slots=True)
class Hold:
    """Have ``storage`` make a replica of ``partition``, or adopt the files that it has of it."""

    storage: str
    partition: int

    def __str__(self) -> str:
        return f"storage {self.storage} makes a replica of partition {self.partition}"


@dataclass(frozen=True, slots=True)
class SwitchOff:
    """Switch ``partition`` off at ``storage``."""

    storage: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} is switched off at storage {self.storage}"


@dataclass(frozen=True, slots=True)
class SwitchOn:
    """Switch ``partition`` on at ``storage``."""

    storage: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} is switched on at storage {self.storage}"


@dataclass(frozen=True, slots=True)
class Fill:
    """Copy ``partition`` from ``source`` to ``destination``, where it is switched off."""

    source: str
    destination: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} is copied from {self.source} to {self.destination}"


@dataclass(frozen=True, slots=True)
class Reassign:
    """Change in ZooKeeper, by one compare-and-set, which storages hold these partitions."""

    changes: tuple[ReplicaChange, ...]

    def __str__(self) -> str:
        return "ZooKeeper is told: " + "; ".join(
            f"partition {change.partition} is on {', '.join(sorted(change.wanted))}"
            for change in self.changes
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """Have ``storage`` give its replicas of ``partitions`` up, with or without their files."""

    storage: str
    partitions: tuple[int, ...]
    delete_files: bool

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.partitions))
        files = "deletes" if self.delete_files else "keeps"
        return f"storage {self.storage} drops partitions {listed} and {files} their files"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing may be done before this has changed by itself, or somebody has seen to it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The goal is reached, and could be seen to hold."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The goal cannot be reached from here, however long one waits."""

    reason: str


Step = Hold | SwitchOff | SwitchOn | Fill | Reassign | Drop
Next = Step | Wait | Done | Refuse


class Order(Protocol):
    """Something to be reached, and the plan that leads there."""

    @property
    def scope(self) -> Scope:
        """What the plan looks at."""

    def next_step(self, observed: Observed) -> Next:
        """Return what is next; from any state in which an earlier attempt was broken off, too."""
