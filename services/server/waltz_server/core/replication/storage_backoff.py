"""Keep which storages of a partition are connected, and which back off after a failure. Pure.

A storage that failed in a store session *backs off*: `store_partition` keeps it out of sessions for
a pause, which grows with the number of failures. The failure count is reset when the storage has
not failed for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from waltz_server.core.effects import BackoffOver, Ready, ResetFailures, StartTimer

_RESET_SECONDS = 60.0
"""The failure count of a storage is reset if it has not failed for this time after its pause."""


@dataclass(slots=True)
class _Storage:
    """Whether a storage is connected, whether it backs off, and its failure count."""

    connected: bool = False
    backing_off: bool = False
    failures: int = 0


class StorageBackoff:
    """The state of each storage of a partition, kept from one session to the next."""

    def __init__(self, pause: Callable[[int], float], ready: Ready) -> None:
        self._pause = pause
        """A function from the number of earlier failures to the seconds to back off."""
        self._ready = ready
        self._storages: dict[str, _Storage] = {}

    def track(self, names: Iterable[str]) -> bool:
        """Track exactly the storages ``names`` from now on; return whether that is a change."""
        wanted = dict.fromkeys(names)
        if wanted.keys() == self._storages.keys():
            return False
        self._storages = {name: self._storages.get(name, _Storage()) for name in wanted}
        return True

    def available(self) -> list[str]:
        """Return the storages that may take part in a session now."""
        return [name for name in self._storages if self.is_available(name)]

    def is_available(self, name: str) -> bool:
        """Whether the storage is tracked, connected and not backing off."""
        known = self._storages.get(name)
        return known is not None and known.connected and not known.backing_off

    def set_connected(self, name: str, connected: bool) -> None:
        """Record whether the connection to a storage is open."""
        known = self._storages.get(name)
        if known is not None:
            known.connected = connected

    def back_off(self, names: Iterable[str]) -> None:
        """Keep storages that failed out of sessions for a while."""
        for name in names:
            known = self._storages.get(name)
            if known is not None and not known.backing_off:
                known.backing_off = True
                pause = self._pause(known.failures)
                known.failures += 1
                self._ready.add(StartTimer(pause, BackoffOver(name)))
                reset = ResetFailures(name, known.failures)
                self._ready.add(StartTimer(pause + _RESET_SECONDS, reset))

    def backoff_over(self, name: str) -> None:
        """Let a storage take part again: its pause is over."""
        known = self._storages.get(name)
        if known is not None:
            known.backing_off = False

    def reset_failures(self, name: str, failures: int) -> None:
        """Reset a storage's failure count if it is still ``failures``: no failure came since."""
        known = self._storages.get(name)
        if known is not None and known.failures == failures:
            known.failures = 0
