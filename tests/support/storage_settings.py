"""The settings of a storage node that a test starts: free ports on loopback, without TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waltz.runtime.configuration import TlsSettings
from waltz_storage.shell.config import StorageConfig


def storage_settings(directory: Path, **changes: Any) -> StorageConfig:
    """Return settings with neither scrubber nor HTTP, and with ``changes`` by their names."""
    settings: dict[str, Any] = {
        "zookeeper": "unused",
        "session_timeout_ms": 1,
        "cluster_root": "/unused",
        "port": 0,
        "admin_port": 0,
        "bind_host": "127.0.0.1",
        "scrub_bytes_per_second": 0,
        "tls_settings": TlsSettings(enabled=False),
    }
    return StorageConfig(directory=directory, **(settings | changes))
