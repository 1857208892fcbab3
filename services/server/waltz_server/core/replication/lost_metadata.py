"""Keep a partition closed while its metadata in ZooKeeper are lost or too old. Pure.

A server begins a session by writing the next session id to ZooKeeper. If ZooKeeper's data are lost
or restored from an older backup, the ids begin again below those on the disks of the replicas. The
server must not raise them session by session until they fit: after that, nothing would distinguish
the metadata from true ones. So it waits until another process, such as ``waltz cluster rescue``,
has written the metadata.
"""

from __future__ import annotations

from waltz.metadata.core.formats import PartitionMetadata

RESCUE = (
    "No replica is changed and the partition stays closed. Rebuild the metadata with: "
    "waltz cluster rescue"
)


def older_than_replica(storage: str, session: int, next_session: int) -> str:
    """Say that ``storage`` has ``session``, although ZooKeeper assigned ``next_session`` next.

    A session gets its id in ZooKeeper before it contacts a storage. So no disk has the id of a new
    session or a larger one, unless ZooKeeper has gone back to an earlier state.
    """
    return (
        f"the metadata in ZooKeeper are lost or restored from an older backup: storage {storage} "
        f"has session {session}, but ZooKeeper assigned session {next_session} next. {RESCUE}"
    )


def names_no_replica(storage: str, last_id: int) -> str:
    """Say that ``storage`` has had ``last_id``, although the metadata are of a new partition."""
    return (
        f"the metadata in ZooKeeper are lost: they name no replica, but storage {storage} has "
        f"transactions up to {last_id}. {RESCUE}"
    )


class LostMetadata:
    """How replicas, or this server's own sessions, contradict the metadata of a partition."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """The contradiction, None if none is known."""
        self._judged = (-1, -1)
        """The version and the session id of the metadata that ``reason`` is about."""

    def session_begun(self, session_id: int, version: int) -> None:
        """Note that ``session_id`` has begun, by a write that gave the metadata ``version``."""
        self.reason, self._judged = None, (version, session_id)

    def check(self, value: PartitionMetadata, version: int, last_session_id: int) -> str | None:
        """Return why no session may begin on the metadata ``value``, None if one may begin.

        ``last_session_id`` is the newest session that this server has begun.
        """
        if self.reason is None or (version, value.session_id) != self._judged:
            self.reason, self._judged = None, (version, value.session_id)
            if value.session_id < last_session_id:
                self.reason = (
                    f"the metadata in ZooKeeper are lost or restored from an older backup: they "
                    f"end with session {value.session_id}, but this server has begun session "
                    f"{last_session_id}. {RESCUE}"
                )
        return self.reason
