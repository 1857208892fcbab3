"""Keep which replicas could not be read for a copy, until they are tried again. Pure.

The *source* of a copy is the replica from which another replica copies records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from waltz.net.core.backoff import Backoff
from waltz.protocol import storage as st
from waltz_server.core.effects import Ready, RetryCopies, StartTimer

_RETRY_BACKOFF = Backoff(5.0, 60.0)
"""The delays before sources are tried again. Shorter ones would hardly help: a storage begins to
repair a damaged record ten seconds after it has found the damage. And each retry adds a line to the
log for each source that fails again."""


class UnreadableSources:
    """The replicas that could not be read in one store session, each at one id or several.

    A replica that could not be read at one id may still be the source of copies that begin with
    other ids. But replicas that have failed less often are preferred: otherwise each copy would
    first try a storage that refuses all reads. After a delay, all replicas are tried again, because
    a storage may be repaired while its partition is in use. Otherwise a replica whose sources are
    all damaged at its next record would wait until the next session.
    """

    def __init__(self, session_id: int) -> None:
        self._session_id = session_id
        self.failures: set[tuple[str, int]] = set()
        """The replicas, each with the first id of a copy for which it could not be read."""
        self.retries = 0
        """How often all replicas were tried again."""
        self._dropped: set[str] = set()
        """The replicas that have failed in this session."""
        self._logged: set[str] = set()
        """The replicas that a log line has named since the last retry."""
        self._timer_runs = False

    def add(self, source: str, first_id: int) -> None:
        """Note that ``source`` could not be read from ``first_id`` on."""
        self.failures.add((source, first_id))

    def refused(self, source: str, first_id: int, response: Any) -> str | None:
        """Note that ``response`` of ``source`` does not have the records from ``first_id`` on.

        Return a text for the log; None if the log has a text about ``source`` since the last retry.
        """
        self.add(source, first_id)
        if source in self._logged:
            return None
        self._logged.add(source)
        failed = isinstance(response, st.FailureResponse)
        why = response.failure.message if failed else "it does not hold the records"
        return f"{source} cannot be read from {first_id} on: {why}"

    def drop(self, source: str) -> None:
        """Never choose ``source`` again in this session: it has failed."""
        self._dropped.add(source)

    def preferred(self, first_id: int, sources: Collection[str]) -> frozenset[str]:
        """Return those of ``sources`` that should be read from ``first_id`` on; empty if none is.

        First, the sources that have failed at ``first_id`` are left out. Of the others, those that
        have failed at the fewest ids since the last retry are returned. So two replicas that are
        damaged at different records are both used, and a replica that refuses all reads is used
        last.
        """
        times = Counter(name for name, _ in self.failures)
        usable = [
            name
            for name in sources
            if name not in self._dropped and (name, first_id) not in self.failures
        ]
        fewest = min((times[name] for name in usable), default=0)
        return frozenset(name for name in usable if times[name] == fewest)

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
        self._logged.clear()
