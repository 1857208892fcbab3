"""Remember where each replica's log ended when it last acknowledged an append. Pure.

What a replica has acknowledged is on its disk. If it comes back with a shorter log, its disk was
restored from an older copy, or has lost records. If the copy is of an earlier store session, the
metadata show this. If it is of the last session that opened, only the server that had this session
can know it, and only as long as no other server begins a session: another server may cut logs.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz.metadata.core.formats import NO_SESSION
from waltz_server.core.replication.session_state import ReplicaSession


class AcknowledgedEnds:
    """The ends of the logs in the last session that opened, as far as this server knows them."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._ends: dict[str, int] = {}

    def session_ended(self, session_id: int, replicas: Mapping[str, ReplicaSession]) -> None:
        """Remember what ``replicas`` acknowledged in a session that had opened, and only this."""
        self._session_id = session_id
        self._ends = {name: r.acknowledged for name, r in replicas.items()}

    def forget(self) -> None:
        """Forget everything: another server may have cut the logs."""
        self._session_id = NO_SESSION
        self._ends.clear()

    def mark_resolved(self, mark: int) -> None:
        """Note that a later session, even if it never opens, may cut every log at ``mark``."""
        self._ends = {name: min(end, mark) for name, end in self._ends.items()}

    def end(self, replica: str, session_id: int) -> int:
        """Return the last id that ``replica`` must hold since ``session_id``, -1 if unknown."""
        return self._ends.get(replica, -1) if session_id == self._session_id else -1
