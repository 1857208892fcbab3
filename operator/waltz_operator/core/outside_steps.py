"""The steps by which clients outside of the Kubernetes cluster get access, or lose it. Pure.

The Services of this access are created by `ApplyObject`, as other objects are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetSlot:
    """Label the pod of a server with its slot (`core.slots`); the slot None removes the label.

    The step does not check that the pod is still as observed. It needs no check: another pod never
    gets the name of this one, and the next plan corrects a label that is wrong.
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
    Both have pairs of a registered address and its outside address, in ascending order. If an
    administrator has changed the addresses since the observation, the step does nothing: the next
    plan sees the change.
    """

    addresses: tuple[tuple[str, str], ...]
    observed: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"addresses for clients outside are written into ZooKeeper: {len(self.addresses)}"


@dataclass(frozen=True, slots=True)
class DeleteOutsideAddresses:
    """Delete the outside addresses in ZooKeeper."""

    def __str__(self) -> str:
        return "the addresses for clients outside are deleted in ZooKeeper"


OutsideStep = WriteOutsideAddresses | DeleteOutsideAddresses
"""A step that changes the outside addresses in ZooKeeper."""
