"""NATS JetStream as a peer: three servers, a stream with three replicas. Starts processes.

The server comes from the PATH, or is built from the Go modules that `nats_load/go.mod` pins. The
load generator is always built. The built programs are kept in ``build/peers``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from typing_extensions import override

from bench.peers.measured import Description, Measured, Peer, PeerLoad, PeerMissing, RunningPeer
from bench.peers.processes import Servers, free_ports, run_command, running_servers

_SOURCE = Path(__file__).parent / "nats_load"
_BUILT = Path(__file__).parents[2] / "build" / "peers"
_REPLICAS = 3


class Nats(Peer):
    """NATS JetStream with ``sync_interval: always``."""

    @override
    async def describe(self) -> Description:
        printed = await run_command(await _program("nats-server"), "--version")
        await _program("nats_load")
        return Description(
            "NATS JetStream",
            printed.strip().removeprefix("nats-server: "),
            "2 of 3 servers have called fsync (sync_interval: always)",
            "the expected last sequence of the writer's subject",
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
        printed = await run_command(
            await _program("nats_load"),
            f"-urls={','.join(self._urls)}",
            f"-stream=s{next(self._streams)}",
            f"-clients={load.clients}",
            f"-window={load.window}",
            f"-size={load.size}",
            f"-records={load.records}",
            f"-locks={str(load.locks).lower()}",
        )
        # The servers have also used CPU time for the warm-up, which has a tenth of the records and
        # one more for each writer. The time for the latter is neglected.
        used = (self._servers.cpu_seconds() - before) / 1.1
        return Measured(**json.loads(printed), server_seconds=used)


async def _start_servers(servers: Servers, home: Path) -> list[str]:
    """Start the servers n0, n1, …; return their addresses in this order."""
    ports, route_ports = free_ports(_REPLICAS), free_ports(_REPLICAS)
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
        await servers.start(
            [await _program("nats-server"), "-c", config], port, home / f"n{number}.log"
        )
    return [f"nats://127.0.0.1:{port}" for port in ports]


async def _program(name: str) -> Path:
    """Return the path of a program; build the program if it is missing. Raises PeerMissing."""
    if name == "nats-server" and (found := shutil.which(name)):
        return Path(found)
    built = _BUILT / name
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise PeerMissing(
            "NATS is measured by programs in Go: install Go 1.25 or later, so that they are built"
        )
    built.parent.mkdir(parents=True, exist_ok=True)
    package = "." if name == "nats_load" else "github.com/nats-io/nats-server/v2"
    await run_command(go, "build", "-o", built, package, cwd=_SOURCE)
    return built
