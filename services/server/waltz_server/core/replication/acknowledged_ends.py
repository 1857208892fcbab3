"""Remember where each replica's log ended when it last acknowledged an append. Pure.

What a replica has acknowledged is on its disk. If it comes back with a shorter log, its disk was
restored from an older copy, or has lost records. If the copy is of an earlier store session, the
session id on the disk is lower than that in the metadata. If it is of the last session that opened,
only the server that had this session can notice it: this server has got the acknowledgements.
Another server that begins a session may cut logs, so this server then forgets what it knows.

`SessionRecovery.measured` compares the ends with the logs. If this server releases the partition
and acquires it again, it knows no ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz.metadata.core.formats import NO_SESSION
from waltz_server.core.replication.session_state import ReplicaSession


class AcknowledgedEnds:
    """For each replica, the last id that it acknowledged in the last session that opened.

    It has no ends if this server has had no such session, or has forgotten them.
    """

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._ends: dict[str, int] = {}

    def session_ended(self, session_id: int, replicas: Mapping[str, ReplicaSession]) -> None:
        """Remember what ``replicas`` acknowledged in ``session_id``, which had opened.

        Forget what was known of earlier sessions.
        """
        self._session_id = session_id
        self._ends = {name: r.acknowledged for name, r in replicas.items()}

    def forget(self) -> None:
        """Forget everything: another server may have cut the logs."""
        self._session_id = NO_SESSION
        self._ends.clear()

    def mark_resolved(self, mark: int) -> None:
        """Lower the ends to ``mark``: a later session has resolved it, and now cuts logs there.

        That session may never open. Then the ends remain those of the session before.
        """
        self._ends = {name: min(end, mark) for name, end in self._ends.items()}

    def end(self, replica: str, session_id: int) -> int:
        """Return the last id that ``replica`` must hold, -1 if this server knows none.

        ``session_id`` is the last session of the replica, by the metadata. Nothing is known if this
        server did not have that session.
        """
        return self._ends.get(replica, -1) if session_id == self._session_id else -1
