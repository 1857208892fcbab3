"""Keep which replicas could not be read for a copy, until they are tried again. Pure."""

from __future__ import annotations

from waltz.net.core.backoff import Backoff
from waltz_server.core.effects import Ready, RetryCopies, StartTimer

_RETRY_BACKOFF = Backoff(5.0, 60.0)
"""The delays before sources are tried again. A storage begins the repair of a damaged record ten
seconds after it has found it, and each retry adds a line for each source to the server's log."""


class UnreadableSources:
    """The replicas that could not be read in one store session, each for copies from one id on.

    They are the source of copies that begin with other ids. After a delay all of them are tried
    again, because a storage may be repaired while its partition is in use. Otherwise a replica
    whose sources are all damaged at its next record would wait until the next session.
    """

    def __init__(self, session_id: int) -> None:
        self._session_id = session_id
        self.failures: set[tuple[str, int]] = set()
        """The replicas, each with the first id of a copy for which it could not be read."""
        self.retries = 0
        """How often the replicas were tried again."""
        self._timer_runs = False

    def add(self, source: str, first_id: int) -> None:
        """Note that ``source`` could not be read from ``first_id`` on."""
        self.failures.add((source, first_id))

    def at(self, first_id: int) -> frozenset[str]:
        """Return the replicas that could not be read from ``first_id`` on."""
        return frozenset(name for name, failed_at in self.failures if failed_at == first_id)

    def start_timer(self, ready: Ready) -> None:
        """Start the timer of the next retry, if there are failures and it does not run."""
        if self.failures and not self._timer_runs:
            self._timer_runs = True
            ready.add(StartTimer(_RETRY_BACKOFF.delay(self.retries), RetryCopies(self._session_id)))

    def forget(self) -> None:
        """Let all replicas be tried again: the timer has expired."""
        self._timer_runs = False
        self.retries += 1
        self.failures.clear()
