"""Keep a partition closed while its metadata in ZooKeeper are lost or too old. Pure.

A server begins a session by writing the next session id to ZooKeeper. If ZooKeeper's data are lost
or restored from an older backup, the ids begin again below those on the disks of the replicas. The
server must not raise the ids session by session until they are above those on the disks. Then
nothing would show any more that the metadata are wrong, and a session could open by the replica
states of an earlier time. So the server waits until another process, such as ``waltz cluster
rescue``, has written the metadata.

A replica with a newer session does not prove that the metadata are lost. Another server may have
begun that session just after this server had begun its own. Only the metadata show which of the two
has happened. So they are read again before a log line advises to rebuild them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from waltz.metadata.core.formats import PartitionMetadata

REBUILD = "Rebuild the metadata with: waltz cluster rescue"
"""What the reader of a log line about a `Contradiction` should do."""

_LOST_OR_RESTORED = "the metadata in ZooKeeper are lost or restored from an older backup"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What a replica has that does not fit the metadata with which a session has begun."""

    problem: str
    """A clause that says what is wrong with the metadata, unless a newer session has begun."""
    observed: str
    """A clause that says what the replica has."""
    may_be_newer_session: bool
    """Whether another server may have begun a newer session: then the metadata are right."""

    def __str__(self) -> str:
        return f"{self.problem}: {self.observed}"


def older_than_replica(storage: str, session: int, next_session: int) -> Contradiction:
    """Say that ``storage`` has ``session``, although ZooKeeper assigned ``next_session`` next.

    A session gets its id in ZooKeeper before it contacts a storage. So no disk has the id of a new
    session or a larger one, unless ZooKeeper has gone back to an earlier state, or another server
    has begun a newer session since.
    """
    return Contradiction(
        _LOST_OR_RESTORED,
        f"storage {storage} has session {session}, but ZooKeeper assigned session {next_session} "
        "next",
        may_be_newer_session=True,
    )


def names_no_replica(storage: str, last_id: int) -> Contradiction:
    """Say that ``storage`` has records, although the metadata are of a new partition."""
    return Contradiction(
        "the metadata in ZooKeeper are lost",
        f"they name no replica, but storage {storage} has transactions up to {last_id}",
        may_be_newer_session=False,
    )


def closed_by(contradiction: Contradiction) -> str:
    """Return why ``contradiction`` ends a session that has not opened, for log lines."""
    if not contradiction.may_be_newer_session:
        return _kept_closed(str(contradiction))
    unclear = "another server may have begun a newer session, so the metadata are read again"
    return f"{contradiction.observed}. No replica is changed; {unclear}"


def continued_despite(contradiction: Contradiction, session_id: int, active: Iterable[str]) -> str:
    """Return ``contradiction`` with its consequence for an open session, and the remedy."""
    continues = f"session {session_id} continues with {', '.join(sorted(active))}"
    refused = f"{continues} and admits no other replica"
    if not contradiction.may_be_newer_session:
        return f"{refused}: {contradiction}. {REBUILD}"
    unless = f"Unless another server has begun a newer session, {contradiction.problem}"
    return f"{refused}: {contradiction.observed}. {unless}. {REBUILD}"


def _kept_closed(contradiction: str) -> str:
    return f"{contradiction}. No replica is changed and the partition stays closed. {REBUILD}"


class LostMetadata:
    """Keeps a partition closed after a contradiction to its metadata was found.

    There are two kinds of contradictions. A session finds that a replica does not fit the metadata
    (`Contradiction`). Or `check` finds that the metadata name an older session than this server has
    begun. The partition stays closed until another process has written the metadata.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why the partition stays closed, None if no contradiction is known."""
        self._checked = (-1, -1)
        """The version and the session id of the metadata that ``reason`` is about.

        `check` has seen them last, or this server has begun its last session with them."""
        self._unconfirmed: Contradiction | None = None
        """A contradiction that becomes ``reason`` if the metadata have not changed since."""

    def session_begun(self, session_id: int, version: int) -> None:
        """Note that ``session_id`` has begun: a write gave the metadata this id and ``version``."""
        self.forget()
        self._checked = (version, session_id)

    def session_did_not_open(self, contradiction: Contradiction | None) -> None:
        """Note the contradiction that the session found, None if it found none."""
        self.forget()
        if contradiction is None:
            return
        if contradiction.may_be_newer_session:
            self._unconfirmed = contradiction
        else:
            self.reason = _kept_closed(str(contradiction))

    def forget(self) -> None:
        """Forget every contradiction that was found so far."""
        self.reason = self._unconfirmed = None

    def check(self, value: PartitionMetadata, version: int, last_session_id: int) -> str | None:
        """Return why no session may begin on the metadata ``value``, None if one may begin.

        ``last_session_id`` is the newest session that this server has begun.
        """
        present = (version, value.session_id)
        have_changed = present != self._checked
        if self._unconfirmed is not None and not have_changed:
            # The metadata are those of this server's last session. If another server had begun a
            # newer one, they would name it.
            self.reason = _kept_closed(str(self._unconfirmed))
        self._unconfirmed = None
        # A reason holds until the metadata change.
        if self.reason is None or have_changed:
            self.reason, self._checked = None, present
            if value.session_id < last_session_id:
                self.reason = _kept_closed(
                    f"{_LOST_OR_RESTORED}: they end with session {value.session_id}, but this "
                    f"server has begun session {last_session_id}"
                )
        return self.reason
