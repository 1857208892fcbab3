"""What a server shows to Prometheus, and what each metric means. Pure."""

from __future__ import annotations

from operator import not_

from waltz.runtime.exposition import (
    Catalogue,
    Family,
    Info,
    Kind,
    Source,
    certificate_left,
    counter,
    gauge,
    histogram,
)

_DISTANCES = (("near", "real-time"), ("far", "catchup"))
"""How far a feed is from the log's end, in our words and in those of the readings."""


def _feeds(happened: str, reading: str, meaning: str) -> Family:
    return Family(
        f"waltz_server_partition_feeds_{happened}_total",
        Kind.COUNTER,
        meaning,
        tuple(
            Source(f"total-{theirs}-feed-context-{reading}", (("distance", ours),))
            for ours, theirs in _DISTANCES
        ),
    )


CATALOGUE = Catalogue(
    group="waltz-server",
    info=Info(
        "waltz_server_info",
        "who it is",
        {
            "cluster": "cluster-name",
            "server_id": "server-id",
            "endpoint": "endpoint",
            "version": "waltz-version-id",
        },
    ),
    process=(
        gauge("waltz_server_healthy", "is-healthy", "1 while `/health` answers 200"),
        gauge("waltz_server_partitions", "waltz-server-num-partitions", "how many it has"),
        certificate_left("waltz_server_tls_certificate_left_seconds"),
        counter(
            "waltz_server_feed_cache_misses_total",
            "feed-cache-miss",
            "feeds that had to ask a storage",
        ),
        counter(
            "waltz_server_data_cache_misses_total",
            "transaction-cache-miss",
            "reads of data that had to ask a storage",
        ),
    ),
    partition=(
        gauge(
            "waltz_server_partition_open",
            "is-closed",
            "1 while it takes appends, in a store session; in JSON the opposite",
            not_,
        ),
        gauge(
            "waltz_server_partition_high_water_mark",
            "high-water-mark",
            "the last committed transaction",
        ),
        gauge(
            "waltz_server_partition_generation",
            "generation",
            "how often it was dealt to a server",
        ),
        gauge(
            "waltz_server_partition_open_appends",
            "pending-append",
            "appends without outcome",
        ),
        gauge(
            "waltz_server_partition_queued_appends",
            "append-queue-size",
            "of these, not yet sent to storages",
        ),
        counter("waltz_server_partition_appends_total", "transaction", "appends that came"),
        counter("waltz_server_partition_committed_appends_total", "successful-append", "committed"),
        counter(
            "waltz_server_partition_refused_appends_total",
            "rejected-append",
            "refused because of a lock",
        ),
        histogram(
            "waltz_server_partition_append_seconds",
            "response-latency",
            "from an append's arrival to its outcome",
        ),
        _feeds("added", "added", "clients that came, near the end of the log or far behind it"),
        _feeds("removed", "removed", "clients that went from there"),
    ),
    not_shown={
        "is-closed": "false",
        "replica-info": "the storages of each partition",
    },
)
