"""Map the machines of the operations page to directories and ports of this machine. Pure.

A page says ``waltz-storage storage.yml &  # on storage-0``, and the file has the settings of all
machines. Here the settings that must differ, such as ports, come from environment variables, which
take precedence over the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
DATA = "/var/lib/waltz"
"""Where the manual's storages have their data, each on its own machine."""

STORAGES = 4
SERVERS = 2
PORTS = 3 * STORAGES + 2 * SERVERS

_PORT, _ADMIN_PORT, _SERVER_PORT = 55280, 55281, 55180


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of the manual, which runs one process."""

    name: str
    environment: Mapping[str, str]
    ports_file: Path
    """Where the process writes its ports once it serves."""
    data: Path
    """Where a storage has its data, which the manual calls `DATA`."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """All machines of the manual, and what its names are here."""

    hosts: Mapping[str, Host]
    names: Mapping[str, str]


def hosts(directory: Path, zookeeper: str, ports: Iterator[int]) -> Hosts:
    """Return the machines below ``directory``, with ``PORTS`` ports for all of them.

    Their addresses are in the order of their names, in which commands list them.
    """
    free = sorted(next(ports) for _ in range(PORTS))
    made: dict[str, Host] = {}
    names = {"zk-1:2181": zookeeper, "WALTZ_TLS=tls.yml": "WALTZ_TLS=off"}
    names |= {"/copy": str(directory / "copy"), "/etc/waltz": str(directory / "etc")}
    for number in range(STORAGES):
        name, (port, admin, http) = f"storage-{number}", free[3 * number : 3 * number + 3]
        listening = {"PORT": port, "ADMIN_PORT": admin, "JETTY_PORT": http}
        made[name] = _host(directory, "STORAGE", name, listening)
        address = f"{name}:{_PORT}"
        names[f"{address} --admin-port {_ADMIN_PORT}"] = f"{HOST}:{port} --admin-port {admin}"
        names[address] = f"{HOST}:{port}"
    for number in range(SERVERS):
        first = 3 * STORAGES + 2 * number
        name, (port, http) = f"server-{number}", free[first : first + 2]
        listening = {"PORT": port, "ADVERTISED_PORT": port, "JETTY_PORT": http}
        made[name] = _host(directory, "SERVER", name, listening)
        names[f"{name}:{_SERVER_PORT}"] = f"{HOST}:{port}"
    return Hosts(made, names)


def _host(directory: Path, kind: str, name: str, listening: Mapping[str, int]) -> Host:
    ports_file, data = directory / f"{name}.json", directory / name
    own = {key: str(port) for key, port in listening.items()}
    own |= {"BIND_HOST": HOST, "PORTS_FILE": str(ports_file), "TLS_ENABLED": "false"}
    own |= {"DIRECTORY": str(data)} if kind == "STORAGE" else {"ADVERTISED_HOST": HOST}
    return Host(
        name, {f"WALTZ_{kind}_{key}": value for key, value in own.items()}, ports_file, data
    )
