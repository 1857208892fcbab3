"""etcd as a peer: three members with their default settings. Starts processes.

The server comes from the PATH, or is built from the Go modules that `etcd_load/go.mod` pins. The
load generator is always built. Each record is the value of a key of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from typing_extensions import override

from bench.peers.go_programs import go_program, go_server
from bench.peers.load_program import LoadProgram, load_program
from bench.peers.measured import (
    Description,
    Measured,
    Peer,
    PeerLoad,
    RunningPeer,
)
from bench.peers.processes import Servers, free_ports, run_command, running_servers

_SOURCE = Path(__file__).parent / "etcd_load"
_MEMBERS = 3
_QUOTA_BYTES = 8 << 30
"""The most bytes of a member's store; the default of 2 GiB may not suffice for all runs."""


class Etcd(Peer):
    """etcd, with one put for each record."""

    @override
    async def describe(self) -> Description:
        await go_program("etcd_load", _SOURCE)
        printed = await run_command(await _server(), "--version")
        return Description(
            "etcd",
            # The first line is, for example: etcd Version: 3.7.3
            printed.splitlines()[0].rpartition(": ")[2],
            durability="2 of 3 members have called fdatasync (the default)",
            lock="a transaction that compares the revision of the writer's key",
        )

    @override
    @asynccontextmanager
    async def start(self) -> AsyncIterator[RunningPeer]:
        with tempfile.TemporaryDirectory(prefix="waltz-peers-") as directory:
            home = Path(directory)
            async with running_servers() as servers:
                endpoints = await _start_members(servers, home)
                program = await go_program("etcd_load", _SOURCE)
                async with load_program(program, endpoints, log=home / "load.log") as load:
                    yield _RunningEtcd(servers, load)


class _RunningEtcd(RunningPeer):
    def __init__(self, servers: Servers, program: LoadProgram) -> None:
        self._servers = servers
        self._program = program
        self._logs = count()

    @override
    async def append(self, load: PeerLoad) -> Measured:
        shape = (load.clients, load.window, load.size)
        await self._program.command(
            "open", f"log{next(self._logs)}", *shape, str(load.locks).lower()
        )
        return await self._program.append(load.records, self._servers)


async def _start_members(servers: Servers, home: Path) -> str:
    """Start the members, and return their addresses for clients."""
    # One call for all ports: two calls could return the same port.
    all_ports = free_ports(2 * _MEMBERS)
    ports, peer_ports = all_ports[:_MEMBERS], all_ports[_MEMBERS:]
    members = [f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(peer_ports)]
    for number, (port, peer_port) in enumerate(zip(ports, peer_ports, strict=True)):
        client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        command: list[str | Path] = [
            await _server(),
            f"--name=m{number}",
            f"--data-dir={home / f'm{number}'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster={','.join(members)}",
            f"--quota-backend-bytes={_QUOTA_BYTES}",
            "--log-level=warn",
        ]
        # `start` waits until ``peer_port`` is open, which a member opens at once. It opens the port
        # for clients only when a majority runs, so `start` would wait for that of the first member
        # in vain.
        await servers.start(command, peer_port, home / f"m{number}.log")
    return ",".join(f"http://127.0.0.1:{port}" for port in ports)


async def _server() -> Path:
    return await go_server("etcd", _SOURCE, "go.etcd.io/etcd/server/v3")
