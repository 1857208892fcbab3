"""Run ``waltz local up`` at an address of this machine that pods can dial. Starts programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.kubectl import run
from e2e.waiting import until

ROOT = "/waltz"
"""The root of the cluster in ZooKeeper."""
_UP_SECONDS = 240.0
_ENDED_SECONDS = 60.0
_ANY_PORT = 9
"""A port to which nothing is sent: the choice of a route needs some port."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster of ``waltz local up``, whose files are in ``directory``."""

    directory: Path

    def waltz(self, *arguments: str) -> str:
        """Run the command line ``waltz`` on this machine for the cluster; return its output."""
        return _waltz(*arguments, "--cluster", str(self.directory))

    @property
    def processes(self) -> dict[str, dict[str, Any]]:
        """The processes by name, such as ``storage/0``, each with its address and process id.

        The process id is None if the process does not run.
        """
        description = json.loads((self.directory / "cluster.json").read_text())
        processes: dict[str, dict[str, Any]] = description["processes"]
        return processes

    @property
    def zookeeper(self) -> str:
        """The address of ZooKeeper."""
        return str(self.processes["zookeeper"]["address"])

    @property
    def storages(self) -> list[str]:
        """The addresses of the storages."""
        return [
            process["address"]
            for name, process in self.processes.items()
            if name.startswith("storage/")
        ]

    def name_and_key(self) -> tuple[str, str]:
        """Return the cluster's name in ZooKeeper, and its key."""
        name, key = self.waltz("cluster", "show", "-o", "template={name} {key}").split()
        return name, key

    def stop(self, kind: str) -> None:
        """Stop all processes of ``kind``, storage or server; return when they have ended."""
        names = [name for name in self.processes if name.startswith(f"{kind}/")]
        for name in names:
            os.kill(self.processes[name]["pid"], signal.SIGTERM)

        def ended() -> bool:
            return all(self.processes[name]["pid"] is None for name in names)

        until(ended, _ENDED_SECONDS, f"the processes {', '.join(names)} have ended")

    def start(self, name: str) -> None:
        """Start one process again; return when it is ready."""
        _waltz("local", "start", name, "--dir", str(self.directory))


@contextmanager
def local_cluster(directory: Path, partitions: int) -> Iterator[LocalCluster]:
    """Run a cluster of three storages and two servers on an address that pods can dial."""
    options = ("--partitions", str(partitions), "--storages", "3", "--servers", "2")
    where = ("--dir", str(directory))
    up = ("local", "up", *where, *options, "--host", address_for_pods(), "--detach")
    _waltz(*up, seconds=_UP_SECONDS)
    try:
        yield LocalCluster(directory)
    finally:
        _waltz("local", "down", *where)


def address_for_pods() -> str:
    """Return the address of this machine in the network of the nodes, which pods can dial.

    If a node runs on this machine itself, the result is the address of the node.
    """
    (node, *_) = json.loads(run("kubectl", "get", "nodes", "-o", "json"))["items"]
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # This sends nothing: it only chooses a route.
        probe.connect((addresses["InternalIP"], _ANY_PORT))
        address: str = probe.getsockname()[0]
    return address


def _waltz(*arguments: str, seconds: float = 120.0) -> str:
    return run(sys.executable, "-m", "waltz.cli", *arguments, seconds=seconds)
