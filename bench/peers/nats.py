"""NATS JetStream as a peer: three servers, a stream with three replicas. Starts processes.

The server comes from the PATH, or is built from the Go modules that `nats_load/go.mod` pins. The
load generator is always built.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from typing_extensions import override

from bench.peers.go_programs import go_program, go_server
from bench.peers.measured import Description, Measured, Peer, PeerLoad, ReadRun, RunningPeer
from bench.peers.processes import Servers, free_ports, run_command, running_servers

_SOURCE = Path(__file__).parent / "nats_load"
_REPLICAS = 3


class Nats(Peer):
    """NATS JetStream with ``sync_interval: always``."""

    @override
    async def describe(self) -> Description:
        await _load_generator()
        printed = await run_command(await _server(), "--version")
        return Description(
            "NATS JetStream",
            printed.strip().removeprefix("nats-server: "),
            durability="2 of 3 servers have called fsync (sync_interval: always; the default is "
            "two minutes)",
            lock="the expected last sequence of the writer's subject",
        )

    @override
    @asynccontextmanager
    async def start(self) -> AsyncIterator[RunningPeer]:
        with tempfile.TemporaryDirectory(prefix="waltz-peers-") as home:
            async with running_servers() as servers:
                urls = await _start_servers(servers, Path(home))
                yield _RunningNats(servers, urls)


class _RunningNats(RunningPeer):
    def __init__(self, servers: Servers, urls: list[str]) -> None:
        self._servers = servers
        self._urls = urls
        self._streams = count()

    @override
    async def append(self, load: PeerLoad) -> Measured:
        before = self._servers.cpu_seconds()
        result = await self._run(
            "append",
            f"s{next(self._streams)}",
            load.size,
            load.records,
            f"-clients={load.clients}",
            f"-window={load.window}",
            f"-locks={str(load.locks).lower()}",
        )
        # The load generator first warms up the servers, by a tenth of the records and one more
        # record for each writer. The servers have used CPU time for that, too. The division takes
        # off the time for the tenth; that for the few other records is neglected.
        used = (self._servers.cpu_seconds() - before) / 1.1
        return Measured(**result, server_seconds=used)

    @override
    async def read(self, size: int, records: int) -> Mapping[str, ReadRun]:
        stream = f"s{next(self._streams)}"
        await self._run("fill", stream, size, records)
        # The server is warm after this first read.
        await self._run("read", stream, size, records)
        before = self._servers.cpu_seconds()
        result = await self._run("read", stream, size, records)
        used = self._servers.cpu_seconds() - before
        return {"ordered consumer, in Go": ReadRun(**result, server_seconds=used)}

    async def _run(
        self, mode: str, stream: str, size: int, records: int, *options: str
    ) -> dict[str, Any]:
        """Run the load generator and return its result."""
        printed = await run_command(
            await _load_generator(),
            f"-mode={mode}",
            f"-urls={','.join(self._urls)}",
            f"-stream={stream}",
            f"-size={size}",
            f"-records={records}",
            *options,
        )
        result: dict[str, Any] = json.loads(printed)
        return result


async def _start_servers(servers: Servers, home: Path) -> list[str]:
    """Start the servers n0, n1, …; return their addresses in this order."""
    # One call for all ports: two calls could return the same port.
    all_ports = free_ports(2 * _REPLICAS)
    ports, route_ports = all_ports[:_REPLICAS], all_ports[_REPLICAS:]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in route_ports)
    for number, (port, route_port) in enumerate(zip(ports, route_ports, strict=True)):
        config = home / f"n{number}.conf"
        config.write_text(
            f"server_name: n{number}\n"
            f"listen: 127.0.0.1:{port}\n"
            f"cluster {{ name: bench, listen: 127.0.0.1:{route_port}, routes: [{routes}] }}\n"
            f"jetstream {{ store_dir: {json.dumps(str(home / f'n{number}'))}, "
            "sync_interval: always }\n"
        )
        await servers.start([await _server(), "-c", config], port, home / f"n{number}.log")
    return [f"nats://127.0.0.1:{port}" for port in ports]


async def _server() -> Path:
    return await go_server("nats-server", _SOURCE, "github.com/nats-io/nats-server/v2")


async def _load_generator() -> Path:
    return await go_program("nats_load", _SOURCE)
