"""Pure. The store sessions that connected servers use.

A storage is ready when its replicas take part in sessions (see `shell.metrics.readiness`). A
replica takes part in a session if a server began that session on it, and a connection of that
server is open. Connections change the sessions on the thread of the engine; the main thread reads
them. So a reader copies each dict in one step.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_storage.core.control.control_format import PartitionInfo


class OpenSessions:
    """The session ids that each open connection of a server uses, by partition."""

    def __init__(self) -> None:
        self._connections: dict[int, Mapping[int, int]] = {}
        """The sessions of each connection, by the `id` of the mapping: two connections may have
        equal sessions."""

    def add(self, sessions: Mapping[int, int]) -> None:
        """Count the sessions of an open connection; the connection may change them later."""
        self._connections[id(sessions)] = sessions

    def remove(self, sessions: Mapping[int, int]) -> None:
        """Stop counting the sessions of a connection, which has ended."""
        self._connections.pop(id(sessions), None)

    def unattended(self, infos: Mapping[int, PartitionInfo]) -> list[int]:
        """Return the partitions whose replicas should take part in a session, but do not.

        A replica that was never in a session has no server yet. A replica that is switched off
        takes part in no session: an administrator or an offline copy has switched it off.
        """
        # Pairs of a partition and the id of a session that an open connection uses.
        used: set[tuple[int, int]] = set()
        for sessions in list(self._connections.values()):
            used.update(list(sessions.items()))
        unattended = []
        for partition, info in sorted(infos.items()):
            should_take_part = info.available and info.session_id >= 0
            if should_take_part and (partition, info.session_id) not in used:
                unattended.append(partition)
        return unattended
