"""Pure. The store sessions that connected servers use.

A storage is ready when its replicas take part in sessions (see `shell.metrics.readiness`). A
replica takes part in a session if a server began that session on it, and a connection of that
server is open. The thread of the engine changes the dicts with the sessions, while the main thread
reads them. So `unattended` copies each dict in one step before it iterates over the copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_storage.core.control.control_format import PartitionInfo


class OpenSessions:
    """For each open connection of a server, the session id that it uses for each partition."""

    def __init__(self) -> None:
        self._connections: dict[int, Mapping[int, int]] = {}
        """The sessions of each connection. The key is the `id` of the mapping, because two
        connections may have equal mappings."""

    def add(self, sessions: Mapping[int, int]) -> None:
        """Count the sessions of an open connection; the connection may change them later."""
        self._connections[id(sessions)] = sessions

    def remove(self, sessions: Mapping[int, int]) -> None:
        """Stop counting the sessions of a connection, which has ended."""
        self._connections.pop(id(sessions), None)

    def unattended(self, infos: Mapping[int, PartitionInfo]) -> list[int]:
        """Return the partitions whose replicas should take part in a session, but do not.

        ``infos`` has the persisted state of each open partition. Two kinds of replicas need not
        take part in a session:

        * A replica that was never in a session: it has no server yet.
        * A replica with a switch that is off: an administrator or an offline copy has set it.
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
