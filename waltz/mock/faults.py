"""What goes wrong in a mock cluster: how often, and when it is to be. Pure, but for a seeded draw.

Every client draws from a sequence of its own for each partition. So what befalls its tenth append
does not depend on what other clients and threads do meanwhile.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Faults:
    """How a mock cluster misbehaves by itself. Rates are between 0 and 1, of appends.

    ``delay_seconds`` is the shortest and the longest time that any message takes.
    ``lost``: the append gets lost on the way and is sent again, so that others may overtake it.
    ``uncertain``: it raises AppendUncertain; half of these are in the log.
    ``conflict``: one with write or read locks is refused although they were free, as by a server
    that cannot tell two locks apart.
    """

    delay_seconds: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0
    uncertain: float = 0.0
    conflict: float = 0.0

    def __post_init__(self) -> None:
        shortest, longest = self.delay_seconds
        if not 0 <= shortest <= longest:
            raise ValueError(f"delay_seconds is {self.delay_seconds}: give shortest and longest")
        rates = (self.lost, self.uncertain, self.conflict)
        if min(rates) < 0 or sum(rates) > 1 or self.lost == 1:
            raise ValueError(f"rates of {rates}: they must be at least 0 and together at most 1")


class Delivery(Enum):
    """What becomes of one append on its way."""

    ARRIVES = "as it should"
    LOST = "sent again"
    UNCERTAIN_ABSENT = "lost, and nobody says so"
    UNCERTAIN_COMMITTED = "in the log, and nobody says so"
    CONFLICT = "refused for no reason"


class Draws:
    """The chances of one client in one partition."""

    def __init__(self, seed: int, client_id: int, partition: int) -> None:
        self._random = random.Random(f"{seed}/{client_id}/{partition}")

    def delay(self, faults: Faults) -> float:
        """Return how many seconds a message takes."""
        return self._random.uniform(*faults.delay_seconds)

    def delivery(self, faults: Faults, *, checked: bool) -> Delivery:
        """Return what becomes of the next append; ``checked``: it has locks to be checked."""
        drawn, half = self._random.random(), self._random.random() < 0.5
        if drawn < faults.lost:
            return Delivery.LOST
        if drawn < faults.lost + faults.uncertain:
            return Delivery.UNCERTAIN_COMMITTED if half else Delivery.UNCERTAIN_ABSENT
        if checked and drawn < faults.lost + faults.uncertain + faults.conflict:
            return Delivery.CONFLICT
        return Delivery.ARRIVES
