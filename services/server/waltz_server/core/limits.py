"""Limits of the work that a partition's store has in progress at the same time. Pure."""

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
    """Transactions after which a session ends and a new one begins, so that marks advance."""
