"""Plan a local cluster: its processes, their names, settings and directories. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from waltz.net.core.addresses import join_address

HOST = "127.0.0.1"
"""The address on which the processes listen if no other is chosen."""
ROOT = "/waltz"
"""The znode of the cluster."""
CLUSTER_NAME = "local"
"""The name of the cluster in its metadata."""
ZOOKEEPER = "zookeeper"
"""The name of ZooKeeper among the processes, and of the folder of its files."""

_LONGEST_RETRY_MS = 1000
"""The longest time after which a server retries to open a store session or to reach a replica."""
_NOT_DIALABLE = ("", "0.0.0.0", "::")
"""Hosts that a process can listen on, and that no process can dial."""
_FORMAT = 1
"""The version of the format of the plan's file."""


class PlanError(ValueError):
    """A shape is impossible, or is not that of the existing cluster; or a plan cannot be read.

    Also raised for a directory that cannot be created, and for an unknown process.
    """


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of partitions and processes, and how the processes are reached.

    With ``tls``, storages and servers use TLS with self-signed certificates. ``host`` is an IPv4
    address of this machine, or a name of it. All processes listen on ``host``, and other processes
    dial them by it.

    Raises PlanError if no process can dial ``host``, if it is an IPv6 address, or if a number is
    below 1.
    """

    partitions: int = 4
    storages: int = 3
    servers: int = 2
    tls: bool = False
    host: str = HOST

    def __post_init__(self) -> None:
        if self.host in _NOT_DIALABLE:
            raise PlanError(
                f"the processes of a cluster dial each other at its host, which cannot be "
                f"{self.host!r}: choose one address of this machine with --host"
            )
        if ":" in self.host:
            raise PlanError(
                f"the processes of a local cluster cannot listen on {self.host!r}: choose an IPv4 "
                "address of this machine, or its name, with --host, and without a port"
            )
        for what, count in (
            ("partition", self.partitions),
            ("storage", self.storages),
            ("server", self.servers),
        ):
            if count < 1:
                raise PlanError(f"a cluster needs at least one {what}, not {count}")

    def __str__(self) -> str:
        security = "TLS" if self.tls else "plaintext"
        counts = f"{self.partitions} partitions, {self.storages} storages, {self.servers} servers"
        place = "" if self.host == HOST else f", at {self.host}"
        return f"{counts}, {security}{place}"

    @property
    def num_ports(self) -> int:
        """How many ports a cluster of this shape listens on: those of `LocalClusterPlan`."""
        return 1 + 3 * self.storages + 2 * self.servers


@dataclass(frozen=True, slots=True)
class StoragePorts:
    """The ports of one storage at ``host``: for servers, for administration, and for HTTP."""

    port: int
    admin: int
    http: int
    host: str = HOST

    @property
    def address(self) -> str:
        """The name of the storage in ZooKeeper."""
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ServerPorts:
    """The ports of one server at ``host``: for clients, and for HTTP."""

    port: int
    http: int
    host: str = HOST

    @property
    def address(self) -> str:
        """The address that clients dial."""
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class LocalClusterPlan:
    """A local cluster's shape and its ports.

    The ports never change: the metadata in ZooKeeper name a storage by its address.
    """

    shape: Shape
    zookeeper_port: int
    storages: tuple[StoragePorts, ...]
    servers: tuple[ServerPorts, ...]

    @classmethod
    def of(cls, shape: Shape, ports: Iterator[int]) -> LocalClusterPlan:
        """Give each process of ``shape`` its ports; ``ports`` yields ``shape.num_ports`` ports."""
        return cls(
            shape,
            next(ports),
            tuple(
                StoragePorts(port=next(ports), admin=next(ports), http=next(ports), host=shape.host)
                for _ in range(shape.storages)
            ),
            tuple(
                ServerPorts(port=next(ports), http=next(ports), host=shape.host)
                for _ in range(shape.servers)
            ),
        )

    def to_json(self) -> str:
        """Return the content of the plan's file in the cluster's directory."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LocalClusterPlan:
        """Read what `to_json` returned; raises PlanError if ``text`` is not such a plan."""
        try:
            fields = json.loads(text)
            if fields["format"] != _FORMAT:
                raise PlanError(f"it is of format {fields['format']}, but must be of {_FORMAT}")
            return cls(
                Shape(**fields["shape"]),
                fields["zookeeper_port"],
                tuple(StoragePorts(**ports) for ports in fields["storages"]),
                tuple(ServerPorts(**ports) for ports in fields["servers"]),
            )
        except PlanError:
            raise  # It is a ValueError, too, and has its complete text already.
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise PlanError("it is damaged, or another program wrote it") from problem

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's connect string."""
        return join_address(self.shape.host, self.zookeeper_port)

    @property
    def storage_names(self) -> tuple[str, ...]:
        """The names of the storages: ``storage/0`` and so on."""
        return tuple(f"storage/{index}" for index in range(len(self.storages)))

    @property
    def server_names(self) -> tuple[str, ...]:
        """The names of the servers: ``server/0`` and so on."""
        return tuple(f"server/{index}" for index in range(len(self.servers)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all processes, in the order in which they start."""
        return (ZOOKEEPER, *self.storage_names, *self.server_names)


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The paths of all files below a cluster's directory."""

    directory: Path

    @property
    def plan(self) -> Path:
        """The plan, which is kept when the cluster stops."""
        return self.directory / "plan.json"

    @property
    def description(self) -> Path:
        """The description of the running cluster; it exists only while the cluster runs."""
        return self.directory / "cluster.json"

    @property
    def lock(self) -> Path:
        """The file that a process locks while it runs the cluster."""
        return self.directory / "lock"

    @property
    def zookeeper(self) -> Path:
        """The directory of ZooKeeper's files."""
        return self.directory / ZOOKEEPER

    def data(self, name: str) -> Path:
        """The data directory of a storage."""
        return self.directory / name

    def config(self, name: str) -> Path:
        """The settings file of a storage or a server."""
        return self.directory / "config" / f"{_flat(name)}.yml"

    def ports_file(self, name: str) -> Path:
        """The file that a storage or a server writes when it is ready."""
        return self.directory / "run" / f"{_flat(name)}.json"

    def log(self, name: str) -> Path:
        """The file with the output of a process."""
        if name == ZOOKEEPER:
            return self.zookeeper / "zookeeper.log"
        return self.directory / "logs" / f"{_flat(name)}.log"

    def folders(self) -> tuple[Path, ...]:
        """The folders that must exist before the processes start."""
        return tuple(self.directory / name for name in ("config", "logs", "run", ZOOKEEPER))


def storage_settings(
    plan: LocalClusterPlan, layout: ClusterLayout, index: int, session_timeout_ms: int
) -> dict[str, Any]:
    """Return the settings of the storage ``storage/index``."""
    name, ports = plan.storage_names[index], plan.storages[index]
    return {
        **_cluster_settings(plan, session_timeout_ms),
        "storage.bind.host": ports.host,
        "storage.port": ports.port,
        "storage.admin.port": ports.admin,
        "storage.jetty.port": ports.http,
        "storage.directory": str(layout.data(name)),
        "storage.ports.file": str(layout.ports_file(name)),
        "storage.tls.enabled": plan.shape.tls,
    }


def server_settings(
    plan: LocalClusterPlan, layout: ClusterLayout, index: int, session_timeout_ms: int
) -> dict[str, Any]:
    """Return the settings of the server ``server/index``."""
    name, ports = plan.server_names[index], plan.servers[index]
    return {
        **_cluster_settings(plan, session_timeout_ms),
        "server.bind.host": ports.host,
        "server.advertised.host": ports.host,
        "server.port": ports.port,
        "server.jetty.port": ports.http,
        "server.ports.file": str(layout.ports_file(name)),
        "server.tls.enabled": plan.shape.tls,
        # On one machine, a longer delay would not reduce the load, but would delay a recovery.
        "storage.maxRetryInterval": _LONGEST_RETRY_MS,
    }


def end_times(
    known: Mapping[str, float], pids: Mapping[str, int | None], now: float
) -> dict[str, float]:
    """Return when the end of each process that does not run was noticed, in seconds since 1970.

    ``known`` are the times that were noticed before. An end that is noticed now has the time
    ``now``. `ClusterDirectory.describe` calls this whenever it writes ``cluster.json``.
    """
    return {name: known.get(name, now) for name, pid in pids.items() if pid is None}


def cluster_description(
    plan: LocalClusterPlan,
    layout: ClusterLayout,
    pids: Mapping[str, int | None],
    control: str | None,
    ended_at: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the contents of ``cluster.json``; ``control`` is the socket of the supervisor.

    ``pids`` has the process ids by name, also that of the ``supervisor``. ``ended_at`` has, for
    processes that have ended, the time in seconds since 1970.
    """
    processes: dict[str, dict[str, Any]] = {
        ZOOKEEPER: {"address": plan.zookeeper, "port": plan.zookeeper_port}
    }
    for name, storage in zip(plan.storage_names, plan.storages, strict=True):
        ports = {"port": storage.port, "admin_port": storage.admin, "http_port": storage.http}
        processes[name] = {"address": storage.address, **ports, "directory": str(layout.data(name))}
    for name, server in zip(plan.server_names, plan.servers, strict=True):
        ports = {"port": server.port, "http_port": server.http}
        processes[name] = {"address": server.address, **ports}
    for name, process in processes.items():
        process |= {"pid": pids.get(name), "ended_at": ended_at.get(name)}
        process["log"] = str(layout.log(name))
    return {
        "zookeeper": plan.zookeeper,
        "root": ROOT,
        "tls": plan.shape.tls,
        "partitions": plan.shape.partitions,
        "supervisor": pids.get("supervisor"),
        "control": control,
        "processes": processes,
    }


def _cluster_settings(plan: LocalClusterPlan, session_timeout_ms: int) -> dict[str, Any]:
    """Return the settings that storages and servers have in common."""
    return {
        "zookeeper.connectString": plan.zookeeper,
        "zookeeper.sessionTimeout": session_timeout_ms,
        "cluster.root": ROOT,
    }


def _flat(name: str) -> str:
    """Return the name of a process as a part of a file name: ``storage-0`` for ``storage/0``."""
    return name.replace("/", "-")
