"""The storages of one partition: who is in touch, and who rests after a failure. Pure.

A storage that failed in a store session is kept out of sessions for a while, longer each time; one
that has behaved for a while is forgiven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from waltz_server.core.effects import Forgiven, Rested, Wake

_FORGIVE_SECONDS = 60.0


@dataclass(slots=True)
class _Storage:
    up: bool = False
    resting: bool = False
    strikes: int = 0


class Standby:
    """What a store remembers of its storages from session to session."""

    def __init__(self, pause: Callable[[int], float]) -> None:
        self._pause = pause
        """Seconds of rest after so many failures before this one."""
        self._storages: dict[str, _Storage] = {}

    def watch(self, names: Iterable[str]) -> bool:
        """Know exactly these storages from now on; returns whether that is a change."""
        wanted = dict.fromkeys(names)
        if wanted.keys() == self._storages.keys():
            return False
        self._storages = {name: self._storages.get(name, _Storage()) for name in wanted}
        return True

    def ready(self) -> list[str]:
        """Return the storages that may take part in a session now."""
        return [name for name in self._storages if self.is_ready(name)]

    def is_ready(self, name: str) -> bool:
        """Whether the storage is known, in touch and rested."""
        known = self._storages.get(name)
        return known is not None and known.up and not known.resting

    def set_up(self, name: str, up: bool) -> None:
        """The connection to a storage is open, or gone."""
        known = self._storages.get(name)
        if known is not None:
            known.up = up

    def rest(self, names: Iterable[str]) -> list[Wake]:
        """Have storages that failed rest, those that do not yet; returns when that ends."""
        wakes = []
        for name in names:
            known = self._storages.get(name)
            if known is not None and not known.resting:
                known.resting = True
                pause = self._pause(known.strikes)
                known.strikes += 1
                wakes.append(Wake(pause, Rested(name)))
                wakes.append(Wake(pause + _FORGIVE_SECONDS, Forgiven(name, known.strikes)))
        return wakes

    def rested(self, name: str) -> None:
        """A storage has rested."""
        known = self._storages.get(name)
        if known is not None:
            known.resting = False

    def forgive(self, name: str, strikes: int) -> None:
        """Forget a storage's failures, if there were no more than these."""
        known = self._storages.get(name)
        if known is not None and known.strikes == strikes:
            known.strikes = 0
