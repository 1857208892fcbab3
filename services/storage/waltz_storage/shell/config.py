"""The storage's settings: those of Waltz 0.13.2 and new ones (spec/behaviour.md section 14).

Touches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator

from waltz.net.accepted import MAX_CONNECTIONS
from waltz.net.core.allowed_names import AllowedNames
from waltz.net.slow_readers import MAX_UNSENT_BYTES
from waltz.net.tls import TlsConfig
from waltz.runtime.configuration import (
    READS_PEM_FILES,
    ClusterSettings,
    File,
    NotNegative,
    OptionalFile,
    OptionalNames,
    OptionalPort,
    OptionalText,
    Port,
    Positive,
    Switch,
    TlsSettings,
    group,
    setting,
)
from waltz.runtime.core.value_types import one_of


class EngineKind(StrEnum):
    """How a storage makes the changes of segment files durable."""

    FILES = "files"
    WAL = "wal"


_IN_ZOOKEEPER = "the storage reads it from ZooKeeper"

# Settings that are accepted and have no effect, each with the reason.
_WITHOUT_EFFECT = {
    "storage.ssl.": READS_PEM_FILES,
    "storage.graphite.": "metrics are read from the HTTP port",
    # The documents of 0.13.2 name these two; its storages ignore them.
    "cluster.key": _IN_ZOOKEEPER,
    "cluster.numPartitions": _IN_ZOOKEEPER,
}


SMALLEST_WAL_BYTES = 1 << 20
"""The least value of ``storage.wal.size``."""
LARGEST_WAL_BYTES = 1 << 44
"""The largest value of ``storage.wal.size``: the number of a block of 4096 bytes has 32 bits."""
LARGEST_LOGGED_SEGMENT_BYTES = 1000 << 30
"""The largest value of ``storage.segment.size.threshold`` with the engine ``wal``: an offset in its
log has 40 bits, and a segment exceeds the threshold by up to one record."""
_Engine = Annotated[str, BeforeValidator(one_of(*(kind.value for kind in EngineKind)))]


class StorageConfig(ClusterSettings):
    """A storage node's settings. Sizes are in bytes, times in milliseconds."""

    process = "storage"
    without_effect = _WITHOUT_EFFECT

    port: Port = setting("storage.port", "port for servers; 0 takes a free one")
    admin_port: Port = setting("storage.admin.port", "port for administration; 0 takes a free one")
    http_port: OptionalPort = setting(
        "storage.jetty.port", "HTTP port for health and metrics; not set: no HTTP", None
    )
    bind_host: OptionalText = setting(
        "storage.bind.host", "address to listen on; not set: all", None
    )
    ports_file: OptionalFile = setting(
        "storage.ports.file", "file to write the ports in use to, as JSON", None
    )
    max_connections: Positive = setting(
        "storage.maxConnections",
        "the most connections open at a time on each port; further ones are closed at once",
        MAX_CONNECTIONS,
    )
    max_unsent_bytes: Positive = setting(
        "storage.maxUnsentBytes",
        "bytes that slow readers of a port may leave unread together; beyond them, some are closed",
        MAX_UNSENT_BYTES,
    )
    directory: File = setting("storage.directory", "existing directory for the data")
    meta_directory: OptionalFile = setting(
        "storage.metaDirectory",
        "existing directory for the control file, set before the first start; not set: with the "
        "data",
        None,
    )
    engine: _Engine = setting(
        "storage.engine",
        "files: flush the files of each partition; wal: commit the changes of all partitions "
        "together in one write-ahead log",
        EngineKind.FILES.value,
    )
    wal_directory: OptionalFile = setting(
        "storage.wal.directory",
        "existing directory for the write-ahead log of the engine wal; changed only after a clean "
        "stop; not set: with the data",
        None,
    )
    wal_bytes: Positive = setting(
        "storage.wal.size",
        "bytes of the write-ahead log of the engine wal; applied at a start after a clean stop",
        256 << 20,
    )
    segment_threshold: Positive = setting(
        "storage.segment.size.threshold", "bytes after which a new segment begins", 1_000_000_000
    )
    open_segments: Positive = setting(
        "storage.segment.cache.capacity", "older segments kept open, per partition", 5
    )
    scrub_bytes_per_second: NotNegative = setting(
        "storage.scrub.bytesPerSecond",
        "how fast the scrubber reads the logs to find damaged records; 0 switches it off, with the "
        "repairs and comparisons",
        4 << 20,
    )
    scrub_repair: Switch = setting(
        "storage.scrub.repair",
        "replace damaged records, found by the scrubber or at a start, with records of other "
        "replicas",
        True,
    )
    scrub_compare: Switch = setting(
        "storage.scrub.compare",
        "compare the replicas with those of other storages after passes of the scrubber",
        True,
    )
    allowed_names: OptionalNames = setting(
        "storage.allowedNames",
        "names of which the certificate of a peer on storage.port must have one, separated by "
        "commas; not set: every peer is allowed",
        None,
    )
    admin_allowed_names: OptionalNames = setting(
        "storage.admin.allowedNames",
        "the same for storage.admin.port",
        None,
    )
    tls_settings: TlsSettings = group("storage.tls", TlsSettings())

    def problems(self, ignored: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each combination of values that cannot be used.

        ``ignored`` has the settings of `without_effect` that are set, with their values.
        """
        yield from super().problems(ignored)
        chosen = [port for port in (self.port, self.admin_port, self.http_port) if port]
        if len(set(chosen)) < len(chosen):
            yield "storage.port, storage.admin.port, storage.jetty.port must all differ"
        if self.wal_bytes < SMALLEST_WAL_BYTES:
            yield f"storage.wal.size must be at least {SMALLEST_WAL_BYTES} bytes"
        if self.wal_bytes > LARGEST_WAL_BYTES:
            yield f"storage.wal.size must be at most {LARGEST_WAL_BYTES} bytes"
        if self.engine == EngineKind.WAL and self.segment_threshold > LARGEST_LOGGED_SEGMENT_BYTES:
            yield (
                "storage.segment.size.threshold must be at most "
                f"{LARGEST_LOGGED_SEGMENT_BYTES} bytes with storage.engine: wal"
            )
        yield from self.tls_settings.tls_problems("storage.", ignored)
        for allowed in (self.allowed_servers, self.allowed_administrators):
            if allowed.names is not None and not (self.tls.enabled and self.tls.ca):
                yield (
                    f"{allowed.setting} needs storage.tls.enabled and storage.tls.ca: set them, so "
                    "that the names in certificates are verified"
                )

    @property
    def allowed_servers(self) -> AllowedNames:
        """The peers that may use the port for servers."""
        return AllowedNames("storage.allowedNames", self.allowed_names)

    @property
    def allowed_administrators(self) -> AllowedNames:
        """The peers that may use the admin port."""
        return AllowedNames("storage.admin.allowedNames", self.admin_allowed_names)

    @cached_property
    def tls(self) -> TlsConfig:
        """The TLS settings of connections."""
        return self.tls_settings.config()
