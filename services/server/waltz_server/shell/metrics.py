"""The metrics of a server and its health (spec/behaviour.md sections 12 and 13).

Reads the state of the server and changes nothing.
"""

from __future__ import annotations

import time
from operator import not_
from typing import Any

from waltz.net import join_address
from waltz.runtime.metrics import (
    Kind,
    MetricDeclarations,
    MetricFamily,
    certificate_left,
    counter,
    gauge,
    gauge_source,
    histogram,
)
from waltz.runtime.version import build_version
from waltz_server.core.reads.feed_schedule import FeedKind
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.node import ServerNode


def health(node: ServerNode) -> tuple[bool, dict[str, Any]]:
    """Return whether the server is healthy, and a report in the form of Waltz 0.13.2.

    A server is healthy if all its partitions are healthy (`StorePartition.healthy`), and if its
    connection to ZooKeeper works or was lost less than two session timeouts ago.
    """
    grace_seconds = 2 * node.config.session_timeout_ms / 1000
    unhealthy_since = node.store.health.unhealthy_since
    connected = unhealthy_since is None or time.monotonic() - unhealthy_since < grace_seconds
    partitions = {str(h.core.id): h.core.store.healthy for h in node.partitions()}
    healthy = connected and all(partitions.values())
    report: dict[str, Any] = {
        "healthy": healthy,
        "zookeeper": connected,
        "partitions": partitions,
    }
    waiting = {str(h.core.id): h.core.store.waiting_for for h in node.partitions()}
    if any(waiting.values()):
        report["waiting"] = {partition: why for partition, why in waiting.items() if why}
    return healthy, {"server-health-check": report}


def readiness(node: ServerNode) -> tuple[bool, dict[str, Any]]:
    """Return whether the server is ready for clients, and the report of `health` with more details.

    A server is ready if it is healthy, has joined the cluster, and has an open store session for
    each of its partitions. A server without partitions is not ready before it has joined: during a
    rolling update an old server stops when a new one is ready, and it could not hand its partitions
    over to a server that has not joined.
    """
    healthy, report = health(node)
    closed = sorted(h.core.id for h in node.partitions() if not h.core.store.is_open)
    if closed:
        report["partitions-not-open"] = closed
    return healthy and not closed and node.has_joined, report


# The arguments of each metric: its name for Prometheus, its meaning, its name in the JSON of Waltz
# 0.13.2, and the function that reads its value.
_PROCESS: tuple[MetricFamily[ServerNode], ...] = (
    gauge(
        "waltz_server_healthy",
        "1 while `/health` answers 200",
        "is-healthy",
        lambda node: health(node)[0],
    ),
    gauge(
        "waltz_server_partitions",
        "number of partitions that this server owns",
        "waltz-server-num-partitions",
        lambda node: len(node.partitions()),
    ),
    gauge(
        "waltz_server_connections",
        "connections of clients that are open",
        "connections",
        lambda node: node.accepted.open,
    ),
    counter(
        "waltz_server_refused_connections_total",
        "connections closed at once, because `server.maxConnections` were open",
        "refused-connections",
        lambda node: node.accepted.refused,
    ),
    counter(
        "waltz_server_closed_slow_readers_total",
        "connections closed because slow readers left more than `server.maxUnsentBytes` unread",
        "closed-slow-readers",
        lambda node: node.accepted.slow_readers.closed,
    ),
    certificate_left(
        "waltz_server_tls_certificate_left_seconds",
        lambda node: node.config.tls.certificate_days_left(),
    ),
    counter(
        "waltz_server_feed_cache_misses_total",
        "times that a feed needed headers from a storage",
        "feed-cache-miss",
        lambda node: node.feed_cache_misses,
    ),
    counter(
        "waltz_server_data_cache_misses_total",
        "client requests for transaction data that needed a read from a storage",
        "transaction-cache-miss",
        lambda node: node.data_cache_misses,
    ),
)

_PARTITION: tuple[MetricFamily[HostedPartition], ...] = (
    gauge(
        "waltz_server_partition_open",
        "1 while the partition has an open store session; in JSON the opposite",
        "is-closed",
        lambda hosted: not hosted.core.store.is_open,
        to_prometheus=not_,
    ),
    gauge(
        "waltz_server_partition_high_water_mark",
        "id of the last committed transaction",
        "high-water-mark",
        lambda hosted: hosted.core.high_water_mark,
    ),
    gauge(
        "waltz_server_partition_generation",
        "number of times the partition was assigned to a server",
        "generation",
        lambda hosted: hosted.core.generation,
    ),
    gauge(
        "waltz_server_partition_open_appends",
        "appends accepted that have no outcome yet",
        "pending-append",
        lambda hosted: hosted.core.open_appends,
    ),
    gauge(
        "waltz_server_partition_queued_appends",
        "open appends that are not yet sent to storages",
        "append-queue-size",
        lambda hosted: hosted.core.store.queued,
    ),
    counter(
        "waltz_server_partition_appends_total",
        "appends accepted",
        "transaction",
        lambda hosted: hosted.core.counters.accepted,
    ),
    counter(
        "waltz_server_partition_committed_appends_total",
        "appends committed",
        "successful-append",
        lambda hosted: hosted.core.counters.committed,
    ),
    counter(
        "waltz_server_partition_refused_appends_total",
        "appends refused because of a lock, or because the client's mark is above the log's end",
        "rejected-append",
        lambda hosted: hosted.core.counters.refused,
    ),
    histogram(
        "waltz_server_partition_append_seconds",
        "time from an append's arrival to its outcome",
        "response-latency",
        lambda hosted: hosted.latency,
    ),
    # Counters for Prometheus; Waltz 0.13.2 shows them as gauges in its JSON.
    MetricFamily(
        "waltz_server_partition_feeds_added_total",
        Kind.COUNTER,
        "feeds that became real-time (near) or catch-up (far) feeds: new feeds and changes of kind",
        (
            gauge_source(
                "total-real-time-feed-context-added",
                lambda hosted: hosted.core.feeds.added[FeedKind.REAL_TIME],
                "near",
            ),
            gauge_source(
                "total-catchup-feed-context-added",
                lambda hosted: hosted.core.feeds.added[FeedKind.CATCH_UP],
                "far",
            ),
        ),
        "distance",
    ),
    MetricFamily(
        "waltz_server_partition_feeds_removed_total",
        Kind.COUNTER,
        "feeds that stopped being real-time (near) or catch-up (far) feeds: they ended or changed",
        (
            gauge_source(
                "total-real-time-feed-context-removed",
                lambda hosted: hosted.core.feeds.removed[FeedKind.REAL_TIME],
                "near",
            ),
            gauge_source(
                "total-catchup-feed-context-removed",
                lambda hosted: hosted.core.feeds.removed[FeedKind.CATCH_UP],
                "far",
            ),
        ),
        "distance",
    ),
)

METRICS: MetricDeclarations[ServerNode, HostedPartition] = MetricDeclarations(
    group="waltz-server",
    info="waltz_server_info",
    info_labels={
        "cluster": gauge_source("cluster-name", lambda node: node.cluster_name),
        "server_id": gauge_source("server-id", lambda node: node.server_id),
        "endpoint": gauge_source("endpoint", lambda node: join_address(*node.endpoint)),
        "version": gauge_source("waltz-version-id", lambda _: build_version()),
    },
    process=_PROCESS,
    partition=_PARTITION,
    json_only={
        # Waltz 0.13.2 shows this metric, so it must be there (spec/behaviour.md section 13).
        gauge_source("is-closed", lambda _: False): "always false",
        gauge_source(
            "replica-info", lambda node: node.replicas()
        ): "the storages of each partition",
    },
)
