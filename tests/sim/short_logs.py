"""Settings that make rare events frequent in a log of some hundred transactions."""

from __future__ import annotations

from random import Random

from waltz.net.core.backoff import Backoff
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import PartitionSettings

COPY_BYTES = 613
"""The most bytes of a copy for a replica; no other read has this bound."""


def short_log_settings(random: Random) -> PartitionSettings:
    """Return settings that make rare events frequent in a log of some hundred transactions."""
    return PartitionSettings(
        lock_table_size=random.choice((50, 500, 5000)),
        min_fetch=random.choice((3, 10)),
        realtime_threshold=random.choice((12, 40)),
        feed_cache_bytes=random.choice((1, 10_000)),
        recent_bytes=random.choice((1, 2_000, 1 << 20)),
        replication=ReplicationLimits(
            batch_records=random.choice((3, 10, 100)),
            batches_in_flight=random.choice((1, 2, 4)),
            tail_bytes=random.choice((1, 2000, 1 << 20)),
            copy_records=random.choice((5, 20, 100)),
            copy_bytes=COPY_BYTES,
            checkpoint_interval=random.choice((15, 50, 100_000)),
        ),
        retry=Backoff(0.02, 1.0),
    )
