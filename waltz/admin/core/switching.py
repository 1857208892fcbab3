"""Order: switch reading and writing of replicas at one storage on or off. Pure.

Servers use a replica only as far as its switches allow. An administrator switches a replica off
before an offline copy, for example.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.admin.core.replicas import HeldPartition, ObservationScope, ReplicaObservation
from waltz.admin.core.steps import (
    Done,
    Next,
    Order,
    Refuse,
    SetSwitch,
    SwitchKind,
    SwitchOff,
    SwitchOn,
    Wait,
    partitions_text,
)


@dataclass(frozen=True, slots=True)
class Switching(Order):
    """Set the read and write switches of ``partitions`` at ``storage``.

    ``read`` and ``write`` are the wanted switches: True for on, False for off, None for no change.
    With ``together``, one request sets both switches, so ``read`` and ``write`` must be the same
    and not None. Storages of Waltz 0.13.2 support only this request.
    """

    storage: str
    partitions: tuple[int, ...]
    read: bool | None
    write: bool | None
    together: bool = False

    @property
    def scope(self) -> ObservationScope:
        """The scope: the storage."""
        return ObservationScope((), frozenset({self.storage}))

    def refusal(self, observation: ReplicaObservation) -> str | None:
        """Return an error if the storage is not in the cluster, otherwise None."""
        return observation.unknown_storage(self.storage)

    def next_step(self, observation: ReplicaObservation) -> Next:
        """Return the next step; an interrupted attempt may have left any state."""
        if problem := observation.storage_problem(self.storage):
            return Wait(f"storage {self.storage} does not answer: {problem}")
        held = observation.storages[self.storage].held
        if missing := sorted(set(self.partitions) - held.keys()):
            return Refuse(
                f"storage {self.storage} does not hold {partitions_text(missing)}; it holds "
                f"{partitions_text(sorted(held)) if held else 'none'}"
            )
        replicas = [held[partition] for partition in self.partitions]
        if self.together:
            return self._set_both(replicas)
        return (
            self._set_one(replicas, SwitchKind.READ, self.read)
            or self._set_one(replicas, SwitchKind.WRITE, self.write)
            or Done()
        )

    def _set_both(self, replicas: list[HeldPartition]) -> Next:
        """Return the step that sets both switches where one is wrong; Done if none is wrong."""
        on = self.read
        assert on is not None, "one request sets both switches"
        assert on is self.write, "one request sets both switches to the same value"
        wrong = tuple(r.partition for r in replicas if (r.readable, r.writable) != (on, on))
        if not wrong:
            return Done()
        return SwitchOn(self.storage, wrong) if on else SwitchOff(self.storage, wrong)

    def _set_one(
        self, replicas: list[HeldPartition], kind: SwitchKind, wanted: bool | None
    ) -> SetSwitch | None:
        """Return the step that sets one switch where it is wrong; None if it is wrong nowhere."""
        if wanted is None:
            return None
        if kind is SwitchKind.READ:
            wrong = tuple(r.partition for r in replicas if r.readable is not wanted)
        else:
            wrong = tuple(r.partition for r in replicas if r.writable is not wanted)
        return SetSwitch(self.storage, wrong, kind, wanted) if wrong else None
