"""Keep a partition closed while its metadata in ZooKeeper are lost or too old. Pure.

A server begins a session by writing the next session id to ZooKeeper. If ZooKeeper's data are lost
or restored from an older backup, the ids begin again below those on the disks of the replicas. The
server must not raise the ids session by session until they fit: after that, nothing would
distinguish the metadata from true ones. So it waits until another process, such as ``waltz cluster
rescue``, has written the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz.metadata.core.formats import PartitionMetadata

REBUILD = "Rebuild the metadata with: waltz cluster rescue"
"""What the reader of a contradiction should do."""


def older_than_replica(storage: str, session: int, next_session: int) -> str:
    """Say that ``storage`` has ``session``, although ZooKeeper assigned ``next_session`` next.

    A session gets its id in ZooKeeper before it contacts a storage. So no disk has the id of a new
    session or a larger one, unless ZooKeeper has gone back to an earlier state.
    """
    return (
        f"the metadata in ZooKeeper are lost or restored from an older backup: storage {storage} "
        f"has session {session}, but ZooKeeper assigned session {next_session} next"
    )


def names_no_replica(storage: str, last_id: int) -> str:
    """Say that ``storage`` has records, although the metadata are of a new partition."""
    return (
        f"the metadata in ZooKeeper are lost: they name no replica, but storage {storage} has "
        f"transactions up to {last_id}"
    )


def closed_by(contradiction: str) -> str:
    """Return ``contradiction`` with its consequence if no session is open, and the remedy."""
    return f"{contradiction}. No replica is changed and the partition stays closed. {REBUILD}"


def continued_despite(contradiction: str, session_id: int, active: Iterable[str]) -> str:
    """Return ``contradiction`` with its consequence for an open session, and the remedy."""
    continues = f"session {session_id} continues with {', '.join(sorted(active))}"
    return f"{continues} and admits no other replica: {contradiction}. {REBUILD}"


class LostMetadata:
    """Keeps why a partition is closed because something contradicts its metadata.

    A session finds the contradiction, in what a replica has, or `check` finds it. The reason holds
    until another process writes the metadata.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why the partition stays closed, None if no contradiction is known."""
        self._checked = (-1, -1)
        """The version and the session id of the metadata that ``reason`` is about."""

    def session_begun(self, session_id: int, version: int) -> None:
        """Note that ``session_id`` has begun: a write gave the metadata this id and ``version``."""
        self.reason, self._checked = None, (version, session_id)

    def session_did_not_open(self, contradiction: str | None) -> None:
        """Note the contradiction that the session found, None if it found none."""
        self.reason = None if contradiction is None else closed_by(contradiction)

    def check(self, value: PartitionMetadata, version: int, last_session_id: int) -> str | None:
        """Return why no session may begin on the metadata ``value``, None if one may begin.

        ``last_session_id`` is the newest session that this server has begun.
        """
        # A reason holds until the metadata are other than those that it is about.
        if self.reason is None or (version, value.session_id) != self._checked:
            self.reason, self._checked = None, (version, value.session_id)
            if value.session_id < last_session_id:
                self.reason = closed_by(
                    f"the metadata in ZooKeeper are lost or restored from an older backup: they "
                    f"end with session {value.session_id}, but this server has begun session "
                    f"{last_session_id}"
                )
        return self.reason
