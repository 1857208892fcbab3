"""Read ``cluster.json``, the description of a local cluster. Touches this file.

`waltz.local` writes the file. This module reads only the values that a client needs to connect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


class BadClusterFile(ValueError):
    """The file cannot be read, or does not describe a local cluster. The text names the file."""


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A local cluster: the address of its ZooKeeper, its root znode, and whether it uses TLS."""

    zookeeper: str
    root: str
    tls: bool


def read_cluster_file(path: Path) -> ClusterFile:
    """Return the cluster that the file at ``path`` describes. Raises BadClusterFile."""
    try:
        described = json.loads(path.read_text())
    except OSError as problem:
        raise BadClusterFile(
            f"cannot read {path}: {problem.strerror}; the cluster.json of a local cluster is there "
            "only while it runs: start one with waltz local up"
        ) from problem
    except (ValueError, RecursionError):
        described = None
    match described:
        case {"zookeeper": str(zookeeper), "root": str(root), "tls": bool(tls)}:
            return ClusterFile(zookeeper, root, tls)
    raise BadClusterFile(f"{path} is not the cluster.json of a local cluster")
