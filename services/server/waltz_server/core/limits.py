"""How much a partition's store has under way at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicationLimits:
    """How much a session has under way."""

    batch_records: int = 500
    batch_bytes: int = 4 << 20
    batches_in_flight: int = 3
    tail_bytes: int = 16 << 20
    """How much of the committed tail is kept in memory for replicas that lag a little."""
    copy_records: int = 500
    """Records per copy during recovery."""
    checkpoint_interval: int = 250_000
    """Transactions after which a session makes way for a new one, so that marks advance."""
