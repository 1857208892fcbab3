"""The sizes of batches and copies, and the limits of a store session. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz.net.core.record_counts import COPY_BYTES


@dataclass(frozen=True, slots=True)
class ReplicationLimits:
    """Limits of one store session (`replication.store_session`)."""

    batch_records: int = 500
    """Maximum number of records in one batch."""
    batch_bytes: int = 4 << 20
    """Maximum size of the records in one batch; a larger record is alone in its batch."""
    batches_in_flight: int = 3
    """Maximum number of batches that are formed and not committed.

    Also the maximum number of batches that are sent to one replica and not acknowledged by it.
    """
    tail_bytes: int = 16 << 20
    """If the batches in memory exceed this size, the oldest committed ones are dropped.

    A replica that lags a little gets its batches from memory. A replica that lags further copies
    them from another replica.
    """
    copy_records: int = 4096
    """Maximum number of records of one copy for a replica that recovers or lags."""
    copy_bytes: int = COPY_BYTES
    """Maximum size of the records of one copy; a larger record is alone in its copy."""
    checkpoint_interval: int = 250_000
    """Transactions after which a session ends; the next session raises the low-water marks.

    The log of a replica that returns may be cut at its low-water mark. The older this mark is, the
    more the replica must copy (see `renewal_reason`)."""
