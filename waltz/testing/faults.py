"""The faults of appends: their rates, and seeded draws. Touches nothing.

Every client has its own random sequence for each partition. So the fault of a client's tenth append
to a partition does not depend on what other clients and threads do. `append_faults` causes the
faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that the test cluster injects. A rate is the fraction of appends, from 0 to 1.

    Attributes:
        delay_seconds: The shortest and the longest delay of a message between client and server.
        lost: The append has no effect, as if the server dropped it. (A server drops appends of an
            older generation.) The client notices this and sends the append again; meanwhile later
            appends may overtake it. If a batch is lost, each of its appends has the outcome
            `waltz.Absent`.
        uncertain: The append raises AppendUncertain; half of these appends are in the log.
        conflict: An append with write or read locks is refused although the locks are free. A
            server does this if the hashes of two locks are the same.
    """

    delay_seconds: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0
    uncertain: float = 0.0
    conflict: float = 0.0

    def __post_init__(self) -> None:
        shortest, longest = self.delay_seconds
        if not 0 <= shortest <= longest:
            raise ValueError(
                f"delay_seconds is {self.delay_seconds}: it must be (shortest, longest), with "
                "0 <= shortest <= longest"
            )
        rates = (self.lost, self.uncertain, self.conflict)
        # If every append were lost, a client would send each one again forever.
        if min(rates) < 0 or sum(rates) > 1 or self.lost == 1:
            raise ValueError(
                f"rates of {rates}: they must be at least 0 and together at most 1, and lost must "
                "be below 1"
            )


class AppendDelivery(Enum):
    """How one append is delivered."""

    ARRIVES = "without a fault"
    LOST = "dropped"
    UNCERTAIN_ABSENT = "not in the log, and no answer"
    UNCERTAIN_COMMITTED = "in the log, and no answer"
    CONFLICT = "refused although its locks are free"


class DeliveryDraws:
    """The random draws of one client in one partition."""

    def __init__(self, seed: int, client_id: int, partition: int) -> None:
        self._random = random.Random(f"{seed}/{client_id}/{partition}")

    def draw(self, faults: Faults, *, has_locks: bool) -> AppendDelivery:
        """Draw how the next append is delivered, with the rates in ``faults``.

        ``has_locks`` tells whether the append has write or read locks: only then can it be refused.
        """
        # Both values are drawn for each append, so that the rates do not change later draws.
        drawn, is_committed = self._random.random(), self._random.random() < 0.5
        if drawn < faults.lost:
            return AppendDelivery.LOST
        if drawn < faults.lost + faults.uncertain:
            if is_committed:
                return AppendDelivery.UNCERTAIN_COMMITTED
            return AppendDelivery.UNCERTAIN_ABSENT
        if has_locks and drawn < faults.lost + faults.uncertain + faults.conflict:
            return AppendDelivery.CONFLICT
        return AppendDelivery.ARRIVES
