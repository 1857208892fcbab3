"""The node's settings: those of Waltz 0.13.2 and this system's own (spec/behaviour.md section 14).

Touches one file and the environment, when they are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waltz.net.tls import TlsConfig
from waltz.runtime.configuration import (
    KEY_STORES,
    Key,
    Schema,
    cluster_keys,
    endpoint_keys,
    file,
    listening_tls_keys,
    port,
    positive,
    read_schema,
    tls_config,
    tls_problems,
)

_KEYS = (
    *cluster_keys(),
    Key("storage.port", port, meaning="port for servers; 0 takes a free one"),
    Key("storage.admin.port", port, meaning="port for administration; 0 takes a free one"),
    *endpoint_keys("storage."),
    Key("storage.directory", file, meaning="existing directory for the data"),
    Key(
        "storage.metaDirectory",
        file,
        None,
        "existing directory for the control file, from the first start on; not set: with the data",
    ),
    Key("storage.segment.size.threshold", positive, 1_000_000_000, "bytes, then a new segment"),
    Key("storage.segment.cache.capacity", positive, 5, "older segments kept open, per partition"),
    *listening_tls_keys("storage.tls."),
)

_DIALS_NOBODY = "a storage dials nobody whose name could be verified"
_MEANINGLESS = {
    "storage.ssl.": KEY_STORES,
    "storage.tls.serverName": _DIALS_NOBODY,
    "storage.tls.verifyServerName": _DIALS_NOBODY,
    "storage.graphite.": "metrics are read from the HTTP port",
}


def _problems(values: Mapping[str, Any], ignored: Mapping[str, Any]) -> Iterator[str]:
    names = ("storage.port", "storage.admin.port", "storage.jetty.port")
    chosen = [values[name] for name in names if values[name]]
    if len(set(chosen)) < len(chosen):
        yield f"{', '.join(names)} must all differ"
    yield from tls_problems("storage.", values, ignored)


SCHEMA = Schema("storage", _KEYS, _MEANINGLESS, _problems)


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """A storage node's settings, checked."""

    zookeeper: str
    session_timeout_ms: int
    cluster_root: str
    port: int
    admin_port: int
    http_port: int | None
    bind_host: str | None
    ports_file: Path | None
    directory: Path
    segment_threshold: int
    open_segments: int
    tls: TlsConfig
    meta_directory: Path | None = None
    """Where the control file is; None: in ``directory``."""


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> StorageConfig:
    """Read the settings in the file at ``path`` and the environment; raises ConfigError."""
    values = read_schema(SCHEMA, path, environment)
    return StorageConfig(
        zookeeper=values["zookeeper.connectString"],
        session_timeout_ms=values["zookeeper.sessionTimeout"],
        cluster_root=values["cluster.root"],
        port=values["storage.port"],
        admin_port=values["storage.admin.port"],
        http_port=values["storage.jetty.port"],
        bind_host=values["storage.bind.host"],
        ports_file=values["storage.ports.file"],
        directory=values["storage.directory"],
        meta_directory=values["storage.metaDirectory"],
        segment_threshold=values["storage.segment.size.threshold"],
        open_segments=values["storage.segment.cache.capacity"],
        tls=tls_config(values, "storage.tls."),
    )
