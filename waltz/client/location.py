"""Find the cluster that a client connects to. Reads files and the environment.

The variables are those of the command line: ``WALTZ_ZOOKEEPER``, ``WALTZ_ROOT``, ``WALTZ_CLUSTER``
and ``WALTZ_TLS``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from waltz.client.core.errors import ClusterNotFound
from waltz.net import PLAINTEXT, TlsConfig
from waltz.runtime.cluster_file import BadClusterFile, read_cluster_file
from waltz.runtime.core.setting_names import DEFAULT_ROOT
from waltz.runtime.extras import needs_extra

LOCAL_CLUSTER_FILE = Path("waltz-local/cluster.json")
"""The description of the cluster that ``waltz local up`` starts in the working directory."""


@dataclass(frozen=True, slots=True)
class ClusterLocation:
    """The addresses of ZooKeeper, the root znode, and the TLS settings for the servers."""

    zookeeper: str
    root: str
    tls: TlsConfig


def find_cluster(
    place: str | Path | None,
    root: str | None,
    tls: TlsConfig | None,
    environment: Mapping[str, str] = os.environ,
) -> ClusterLocation:
    """Return the cluster that the arguments of `waltz.connect` name.

    ``place`` is the path of a ``cluster.json``, the addresses of ZooKeeper, or None. Only for None,
    the environment names the cluster, or the description of a local cluster in the working
    directory does. ``root`` and ``tls`` override what is found. Raises ClusterNotFound, and
    waltz.runtime.configuration.ConfigError for the file of ``WALTZ_TLS``.
    """
    variables = environment if place is None else {}
    zookeeper = variables.get("WALTZ_ZOOKEEPER")
    root = root or variables.get("WALTZ_ROOT")
    tls = tls or _tls_of(variables.get("WALTZ_TLS"))
    file = _file_of(place, zookeeper, variables.get("WALTZ_CLUSTER"))
    if file is None:
        zookeeper = zookeeper or (None if place is None else str(place))
        if zookeeper is None:
            raise ClusterNotFound(
                "no cluster is named: pass the addresses of ZooKeeper or the path of a "
                "cluster.json to connect, set WALTZ_ZOOKEEPER or WALTZ_CLUSTER, or start a cluster "
                "here with: waltz local up"
            )
        return ClusterLocation(zookeeper, root or DEFAULT_ROOT, tls or TlsConfig())
    try:
        described = read_cluster_file(file)
    except BadClusterFile as problem:
        raise ClusterNotFound(str(problem)) from problem
    tls = tls or (TlsConfig() if described.tls else PLAINTEXT)
    return ClusterLocation(zookeeper or described.zookeeper, root or described.root, tls)


def _file_of(place: str | Path | None, zookeeper: str | None, variable: str | None) -> Path | None:
    """Return the description of the cluster that is meant, None if none is."""
    if place is not None:
        is_file = isinstance(place, Path) or place.endswith(".json")
        return Path(place) if is_file else None
    if variable:
        if variable.endswith((".yml", ".yaml")):
            raise ClusterNotFound(
                f"WALTZ_CLUSTER is {variable}, a settings file of the command line: open the "
                "client with connect_as_configured, or set WALTZ_ZOOKEEPER and WALTZ_ROOT"
            )
        return Path(variable)
    return LOCAL_CLUSTER_FILE if zookeeper is None and LOCAL_CLUSTER_FILE.exists() else None


def _tls_of(variable: str | None) -> TlsConfig | None:
    """Return the TLS settings that ``WALTZ_TLS`` means: ``on``, ``off`` or the path of a file."""
    match (variable or "").lower():
        case "":
            return None
        case "off":
            return PLAINTEXT
        case "on":
            return TlsConfig()
    with needs_extra("WALTZ_TLS with a file", "config"):
        from waltz.client.settings import TlsFile
        from waltz.runtime.configuration import read_settings

    return read_settings(TlsFile, Path(variable or ""), {}).config()
