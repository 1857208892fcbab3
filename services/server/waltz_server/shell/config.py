"""The server's settings: those of Waltz 0.13.2 and new ones (spec/behaviour.md section 14).

Reads the host's name, if the setting ``server.advertised.host`` is not set.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from waltz.net.accepted import MAX_CONNECTIONS
from waltz.net.core.backoff import Backoff
from waltz.net.slow_readers import MAX_UNSENT_BYTES
from waltz.net.tls import TlsConfig
from waltz.runtime.configuration import (
    READS_PEM_FILES,
    ClusterSettings,
    NotNegative,
    OptionalFile,
    OptionalPort,
    OptionalText,
    Port,
    Positive,
    Switch,
    TlsSettings,
    group,
    setting,
)
from waltz_server.core.access.client_quotas import QuotaLimits
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import PartitionSettings

# Settings of Waltz 0.13.2 that are accepted and have no effect, each with the reason.
_WITHOUT_EFFECT = {
    "server.region": "no server uses the region",
    "server.transactionDataCacheAllocation": "this server has one kind of memory",
    "server.ssl.": READS_PEM_FILES,
    # The documents of 0.13.2 name these settings for connections to storages; its servers ignore
    # them.
    "storage.ssl.": "a server uses server.tls.* for connections to storages, too",
    "server.graphite.": "metrics are read from the HTTP port",
}


class ServerConfig(ClusterSettings):
    """A server's settings. Sizes are in bytes, times in milliseconds."""

    process = "server"
    without_effect = _WITHOUT_EFFECT

    port: Port = setting("server.port", "port for clients; 0 takes a free one")
    http_port: OptionalPort = setting(
        "server.jetty.port", "HTTP port for health and metrics; not set: no HTTP", None
    )
    bind_host: OptionalText = setting(
        "server.bind.host", "address to listen on; not set: all", None
    )
    ports_file: OptionalFile = setting(
        "server.ports.file", "file to write the ports in use to, as JSON", None
    )
    advertised: OptionalText = setting(
        "server.advertised.host", "host that clients connect to; not set: the host name", None
    )
    advertised_port: OptionalPort = setting(
        "server.advertised.port", "port that clients connect to; not set: server.port", None
    )
    max_connections: Positive = setting(
        "server.maxConnections",
        "the most connections open at a time; further ones are closed at once",
        MAX_CONNECTIONS,
    )
    max_unsent_bytes: Positive = setting(
        "server.maxUnsentBytes",
        "bytes that slow readers may leave unread together; beyond them, some are closed",
        MAX_UNSENT_BYTES,
    )
    access_required: Switch = setting(
        "server.access.required",
        "refuse every request of clients also while the cluster has no access rules",
        False,
    )
    quota_append_bytes: NotNegative = setting(
        "server.quota.appendBytesPerSecond",
        "bytes that each client may append per second at this server; a faster client waits; "
        "0: no limit",
        0,
    )
    quota_connections: NotNegative = setting(
        "server.quota.connections",
        "the most connections of each client at this server; further ones are closed; 0: no limit",
        0,
    )
    lock_table_size: Positive = setting(
        "server.optimisticLockTableSize", "slots of a partition's lock table", 30_000
    )
    feed_cache_bytes: Positive = setting(
        "server.feedCacheSize",
        "bytes of cached transaction headers for feeds, shared by the partitions",
        64 << 20,
    )
    min_fetch: Positive = setting(
        "server.minFetchSize", "the fewest transactions fed for one feed request", 100
    )
    realtime_threshold: Positive = setting(
        "server.realtimeThreshold",
        "a feed less than this many transactions behind the log's end is real-time",
        1000,
    )
    data_cache_bytes: Positive = setting(
        "server.transactionDataCacheSize",
        "bytes of cached recent transactions with their data, shared by the partitions",
        128 << 20,
    )
    batch_records: Positive = setting(
        "storage.maxBatchSize", "the most transactions in one append to the storages", 500
    )
    first_retry_ms: Positive = setting(
        "storage.initialRetryInterval",
        "milliseconds until a partition retries a failed session or replica for the first time",
        100,
    )
    longest_retry_ms: Positive = setting(
        "storage.maxRetryInterval",
        "the most milliseconds between two retries; the interval doubles up to this value",
        20_000,
    )
    checkpoint_interval: Positive = setting(
        "storage.checkpointInterval",
        "transactions after which a store session ends and the next one begins",
        250_000,
    )
    tls_settings: TlsSettings = group("server.tls", TlsSettings())

    def problems(self, ignored: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each combination of values that cannot be used.

        ``ignored`` has the settings in use that have no effect, with their values.
        """
        yield from super().problems(ignored)
        if self.min_fetch >= self.realtime_threshold:
            # A rule of Waltz 0.13.2 (spec/behaviour.md section 7).
            yield "server.realtimeThreshold must exceed server.minFetchSize"
        if self.port and self.port == self.http_port:
            yield "server.port and server.jetty.port must differ"
        yield from self.tls_settings.tls_problems("server.", ignored)
        if self.access_required and not (self.tls.enabled and self.tls.ca):
            yield (
                "server.access.required needs server.tls.enabled and server.tls.ca: set them, so "
                "that the server verifies the certificates of clients"
            )

    @cached_property
    def tls(self) -> TlsConfig:
        """The TLS settings of connections."""
        return self.tls_settings.config()

    @property
    def quota_limits(self) -> QuotaLimits:
        """The limits of each client."""
        return QuotaLimits(self.quota_append_bytes, self.quota_connections)

    @cached_property
    def advertised_host(self) -> str:
        """The host that clients connect to."""
        return self.advertised or socket.getfqdn()

    @cached_property
    def partition(self) -> PartitionSettings:
        """The settings of every partition; `ServerNode.start` adds the share of the caches."""
        return PartitionSettings(
            lock_table_size=self.lock_table_size,
            min_fetch=self.min_fetch,
            realtime_threshold=self.realtime_threshold,
            replication=ReplicationLimits(
                batch_records=self.batch_records, checkpoint_interval=self.checkpoint_interval
            ),
            retry=Backoff(self.first_retry_ms / 1000, self.longest_retry_ms / 1000),
        )
