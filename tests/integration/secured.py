"""Run a storage and a server as processes on free ports, with mutual TLS or other TLS settings."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import yaml

from tests.support.eventually import eventually
from waltz.admin import OrderExecutor, Synchronization, carry_out
from waltz.local.child import ChildProcess
from waltz.local.ports import choose_ports
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import create_cluster
from waltz.net import TlsConfig

HOST = "127.0.0.1"
_PARTITIONS = 1
_SECONDS = 60.0


class SecuredCluster:
    """One partition on one storage; ``tls`` has the TLS settings of both processes.

    ``advertised`` is the host that the server registers.
    """

    def __init__(
        self, folder: Path, zookeeper: str, root: str, tls: TlsConfig, advertised: str = HOST
    ) -> None:
        self.advertised = advertised
        self.zookeeper = zookeeper
        self.root = root
        self.key = uuid.uuid4()
        self._folder = folder
        self._tls = tls
        self._own: dict[str, dict[str, Any]] = {}
        """The settings of each process that are not those of the other one."""
        self.storage = self._child("storage")
        self.server = self._child("server")

    @property
    def server_ports(self) -> dict[str, int]:
        """The ports that the server reports."""
        ports: dict[str, int] = json.loads((self._folder / "server.json").read_text())
        return ports

    async def start(self) -> None:
        """Create the cluster and start both processes."""
        # The storage's ports are chosen here, because ZooKeeper must have them before it starts.
        port, admin_port = choose_ports(2)
        address = f"{HOST}:{port}"
        store = await KazooStore.connect(self.zookeeper, 6000)
        maps = assign_everything({address: 0}, {address: admin_port}, _PARTITIONS)
        await create_cluster(store, self.root, "secured", _PARTITIONS, key=self.key, storages=maps)
        (self._folder / "data").mkdir()
        self._own = {
            "storage": {
                "port": port,
                "admin.port": admin_port,
                "directory": str(self._folder / "data"),
            },
            "server": {"port": 0, "advertised.host": self.advertised},
        }
        self._write_settings()
        await self._start(self.storage)
        executor = OrderExecutor(Cluster(store, self.root), self._tls)
        await carry_out(Synchronization(address), executor)
        await store.close()
        await self._start_server()

    async def stop(self) -> None:
        """Stop both processes."""
        await self.server.stop()
        await self.storage.stop()

    async def restart(self, tls: TlsConfig) -> None:
        """Stop both processes, and start them with other TLS settings."""
        await self.stop()
        self._tls = tls
        self._write_settings()
        await self._start(self.storage)
        await self._start_server()

    def log_of(self, name: str) -> str:
        """Return the log of a process, empty before its first start."""
        log = self._folder / f"{name}.log"
        return log.read_text() if log.exists() else ""

    async def _start_server(self) -> None:
        """Start the server, and wait until it has joined, which it does after it is ready.

        A client that finds no server has none to check its TLS settings with, and opens.
        """
        joined = "joined with the address"
        before = self.log_of("server").count(joined)
        await self._start(self.server)
        await eventually(lambda: self.log_of("server").count(joined) > before)

    async def _start(self, child: ChildProcess) -> None:
        child.start()
        await child.wait_until_ready(_SECONDS)

    def _child(self, name: str) -> ChildProcess:
        at = self._folder / name
        return ChildProcess(
            name,
            f"waltz-{name}",
            at.with_suffix(".yml"),
            at.with_suffix(".json"),
            at.with_suffix(".log"),
        )

    def _write_settings(self) -> None:
        """Write the settings files of both processes."""
        files = {"certificate": self._tls.certificate, "key": self._tls.key, "ca": self._tls.ca}
        tls: dict[str, Any] = {"enabled": self._tls.enabled}
        tls |= {key: str(file) for key, file in files.items() if file is not None}
        for name, own in self._own.items():
            is_named = name == "server" and self._tls.server_name is not None
            server_name = {"serverName": self._tls.server_name} if is_named else {}
            settings = {
                "zookeeper": {"connectString": self.zookeeper, "sessionTimeout": 6000},
                "cluster.root": self.root,
                name: own
                | {
                    "bind.host": HOST,
                    "jetty.port": 0,
                    "ports.file": str(self._folder / f"{name}.json"),
                    "tls": tls | server_name,
                },
            }
            (self._folder / f"{name}.yml").write_text(yaml.safe_dump(settings))


async def exit_status(child: ChildProcess) -> int | None:
    """Stop a process gracefully and return its exit status."""
    await asyncio.wait_for(child.stop(), _SECONDS)
    return child.exit_status
