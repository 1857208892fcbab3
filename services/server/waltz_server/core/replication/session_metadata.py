"""Read and write the partition's metadata while a store session runs. Pure.

An open session does not end because ZooKeeper is away. It ends on purpose (a *renewal*) at a
checkpoint, to readmit a replica, and after a change of the replica assignment. The next session
begins with a write to ZooKeeper. If the open session ended first, and ZooKeeper did not answer, the
partition would have no session and take no appends. So a renewal first reads the metadata, while
the session takes appends. If the answer shows that no newer session has begun, the session
*drains*: it sends no further batches, and closes when those in flight are committed.

If a write of an open session fails, its outcome is unknown. The session continues, and a read shows
the outcome.
"""

from __future__ import annotations

from waltz.metadata.core.formats import PartitionMetadata
from waltz.net.core.backoff import Backoff
from waltz_server.core.effects import (
    LogLevel,
    MetadataOperation,
    ReadMetadata,
    Ready,
    RetryMetadata,
    StartTimer,
    WriteLog,
    WriteMetadata,
)
from waltz_server.core.replication.awaited_operation import AwaitedOperation
from waltz_server.core.replication.session_state import SessionPhase
from waltz_server.core.replication.storage_backoff import StorageBackoff
from waltz_server.core.replication.store_session import StoreSession

METADATA_BACKOFF = Backoff(0.1, 1.0)
"""The delays after a failed operation that was to begin a session: no session is open meanwhile."""
_OPEN_BACKOFF = Backoff(0.1, 10.0)
"""The delays after a failed operation of an open session: longer, because appends go on."""


REPLICAS_CHANGED = "the replica assignment changed"
"""A reason for a renewal; `store_partition` also ends a session in recovery with it."""


def renewal_reason(
    session: StoreSession, replicas: tuple[str, ...], backoff: StorageBackoff
) -> str | None:
    """Return why another session should follow ``session``, None if it need not.

    ``replicas`` are the storages that are assigned now.
    """
    # The first comparison is for speed: this is called for each answer of a storage.
    if session.replicas != replicas and set(session.replicas) != set(replicas):
        return REPLICAS_CHANGED
    if session.is_checkpoint_due():
        # Low-water marks advance only with a new session. The log of a readmitted replica may be
        # cut at its mark. Without checkpoints the replica would have to copy more and more.
        return "checkpoint"
    if not session.failed:
        return None
    storage = next(filter(backoff.is_available, session.failed), None)
    return f"to readmit {storage}" if storage is not None else None


class SessionMetadata:
    """The operations of one session on the metadata, at most one at a time.

    ``version`` is the version of the metadata in ZooKeeper, for the next compare-and-set.
    """

    def __init__(
        self, session: StoreSession, version: int, awaited: AwaitedOperation, ready: Ready
    ) -> None:
        self._session = session
        self._version = version
        self._awaited = awaited
        self._ready = ready
        self._write_in_doubt = False
        """Whether a write of `StoreSession.metadata_due` failed: ZooKeeper may have it or not."""
        self._pausing = False
        """Whether the backoff after a failed operation is still running."""
        self._failures = 0
        """Number of operations that have failed since the last one that succeeded."""
        self._renewal: str | None = None
        """The reason for a renewal at the last call of `proceed`."""

    def proceed(self, renewal: str | None) -> None:
        """Start the operation that is due; call this after each input of the session.

        ``renewal`` is the present reason for a renewal, None if there is none.
        """
        session = self._session
        self._renewal = renewal
        if self._awaited.is_pending or self._pausing:
            return
        may_write = session.phase in (SessionPhase.RECOVERING, SessionPhase.OPEN)
        if session.metadata_due is not None and may_write and not self._write_in_doubt:
            self._awaited.start(WriteMetadata(session.metadata_due, self._version))
        elif session.phase is SessionPhase.OPEN and (self._write_in_doubt or renewal is not None):
            self._awaited.start(ReadMetadata())

    def written(self, version: int) -> None:
        """Continue after a write has succeeded; the metadata now have ``version``."""
        self._version = version
        self._failures = 0
        self._session.metadata_written()

    def was_read(self, value: PartitionMetadata, version: int) -> None:
        """Resolve a write in doubt; drain the session if there is still a reason for a renewal."""
        session = self._session
        if (value.generation, value.session_id) != (session.generation, session.session_id):
            # ZooKeeper names a newer session. Close now: the storages will refuse this session's
            # requests as soon as the newer session has contacted them.
            session.close(
                f"session {value.session_id} of generation {value.generation} has begun instead"
            )
            return
        if self._write_in_doubt:
            self._write_in_doubt = False
            if value == session.metadata_due:
                self.written(version)
            elif version != self._version:
                session.close("metadata: another process has changed the partition's metadata")
                return
            # Otherwise the write did not happen: `proceed` repeats it. It may fail again, so the
            # failure count stays.
        else:
            self._failures = 0
        # A session whose metadata must still be written does not drain yet: its write could collide
        # with the write that begins the next session.
        if self._renewal is not None and session.metadata_due is None:
            session.drain(self._renewal)

    def failed(self, operation: MetadataOperation, reason: str) -> None:
        """Retry later while the session is open; otherwise end the session."""
        session = self._session
        if session.phase is not SessionPhase.OPEN:
            session.close(f"metadata: {reason}")
            return
        if isinstance(operation, WriteMetadata):
            self._write_in_doubt = True
        self._pausing = True
        seconds = _OPEN_BACKOFF.delay(self._failures)
        self._failures += 1
        self._ready.add(
            WriteLog(
                LogLevel.WARNING,
                f"partition {session.partition}: metadata: {reason}; session {session.session_id} "
                f"continues, retrying in {seconds:g} s",
            )
        )
        self._ready.add(StartTimer(seconds, RetryMetadata(session.session_id)))

    def pause_over(self) -> None:
        """Allow the next operation: the backoff is over."""
        self._pausing = False
