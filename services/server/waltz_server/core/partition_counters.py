"""Count what happens to the appends of one partition, for metrics. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PartitionCounters:
    """Numbers of appends since this server has acquired the partition."""

    accepted: int = 0
    """Appends that entered the append queue."""
    committed: int = 0
    """Appends that a quorum has on its disks."""
    refused: int = 0
    """Appends refused because of a lock, or because the log ends before the client's mark."""
