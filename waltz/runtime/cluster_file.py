"""Read ``cluster.json``, the description of a local cluster. Touches this file.

`waltz.local` writes the file. This module reads only the values that a client needs to connect. It
also forms the commands that messages suggest for a local cluster.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

LOCAL_DIRECTORY = Path("waltz-local")
"""The default directory of a cluster that ``waltz local up`` starts."""
CLUSTER_FILE = "cluster.json"
"""The name of the description in the directory of a local cluster."""


class BadClusterFile(ValueError):
    """The file cannot be read, or does not describe a local cluster. The text names the file."""


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A local cluster: the address of its ZooKeeper, its root znode, and whether it uses TLS."""

    zookeeper: str
    root: str
    tls: bool


def local_command(directory: Path, *words: str) -> str:
    """Return the command ``waltz local`` with ``words`` for the cluster in ``directory``."""
    is_default = directory.absolute() == LOCAL_DIRECTORY.absolute()
    where = () if is_default else ("--dir", str(directory))
    return shlex.join(("waltz", "local", *words, *where))


def cluster_file_at(path: Path) -> Path:
    """Return the description of a local cluster; ``path`` is its path, or that of its directory."""
    return path / CLUSTER_FILE if path.is_dir() else path


def read_cluster_file(path: Path) -> ClusterFile:
    """Return the cluster that the file at ``path`` describes. Raises BadClusterFile.

    ``path`` may also be the directory of a local cluster.
    """
    file = cluster_file_at(path)
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError as problem:
        if file.name != CLUSTER_FILE:
            raise BadClusterFile(f"cannot read {file}: {problem.strerror}") from problem
        below = file.parent / LOCAL_DIRECTORY
        if (below / CLUSTER_FILE).exists():
            # The path may be the directory in which `waltz local up` was run. So do not suggest
            # another `up`: with this directory, it would make a second cluster.
            raise BadClusterFile(
                f"cannot read {file}: {problem.strerror}; the local cluster is in {below}: name "
                "that directory"
            ) from problem
        raise BadClusterFile(
            f"cannot read {file}: {problem.strerror}; the {CLUSTER_FILE} of a local cluster exists "
            f"only while the cluster runs; start it with: {local_command(file.parent, 'up')}"
        ) from problem
    except OSError as problem:
        raise BadClusterFile(f"cannot read {file}: {problem.strerror}") from problem
    except (ValueError, RecursionError):
        content = None  # The file is not JSON. It is refused below, like JSON of another form.
    match content:
        case {"zookeeper": str(zookeeper), "root": str(root), "tls": bool(tls)}:
            return ClusterFile(zookeeper, root, tls)
    raise BadClusterFile(f"{file} is not the {CLUSTER_FILE} of a local cluster")
