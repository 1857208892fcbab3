"""The steps by which clients outside of the Kubernetes cluster get access, or lose it. Pure.

The Services of this access are created by `ApplyObject`, as other objects are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetSlot:
    """Label the pod of a server with its slot (`core.slots`); the slot None removes the label.

    The step does not check that the pod is still as observed. It needs no check: Kubernetes makes a
    new name for each pod of the servers, and the next plan corrects a label that is wrong.
    """

    pod: str
    slot: int | None

    def __str__(self) -> str:
        if self.slot is None:
            return f"pod {self.pod} gives up its slot for clients outside"
        return f"pod {self.pod} gets the slot {self.slot} for clients outside"


@dataclass(frozen=True, slots=True)
class WriteOutsideAddresses:
    """Write the outside addresses into ZooKeeper, in place of those that were observed.

    ``addresses`` are the new ones, ``observed`` those that were observed, empty if there were none.
    Both have pairs in ascending order: the address that a process has registered in ZooKeeper, and
    the outside address that clients outside use instead (`planning.outside_addresses`). If an
    administrator has changed the addresses since the observation, the step does nothing: the next
    plan sees the change.
    """

    addresses: tuple[tuple[str, str], ...]
    observed: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"addresses for clients outside are written into ZooKeeper: {len(self.addresses)}"


@dataclass(frozen=True, slots=True)
class DeleteOutsideAddresses:
    """Delete the outside addresses in ZooKeeper.

    The step does not compare them with those that were observed. If it is performed late, the next
    plan writes the wanted addresses again.
    """

    def __str__(self) -> str:
        return "the addresses for clients outside are deleted in ZooKeeper"


OutsideStep = WriteOutsideAddresses | DeleteOutsideAddresses
"""A step that changes the outside addresses in ZooKeeper."""
