"""Apache Kafka as a peer: three brokers that are also the controllers (KRaft). Starts processes.

Each run appends to a new topic with one partition and three replicas. The topic's setting
``flush.messages`` makes each replica flush what it appends, which Kafka does not do by default.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from typing_extensions import override

from bench.peers.kafka_jars import SOURCE, kafka_jars
from bench.peers.load_program import LoadProgram, load_program
from bench.peers.measured import (
    WARM_UP_SECONDS,
    Description,
    Measured,
    Peer,
    PeerLoad,
    ReadRun,
    RunningPeer,
)
from bench.peers.processes import Servers, free_ports, run_command, running_servers

_BROKERS = 3
_CLUSTER_ID = "d2FsdHotYmVuY2gtcGVlcg"
"""Any 16 bytes, in base64."""
_FLUSH_EACH = 1
"""The value of ``flush.messages`` with which each record is flushed."""
_FLUSH_BY_DEFAULT = 0
"""Tells the load generator to leave ``flush.messages`` at its default."""
_WARM_UP_SHAPES = ((8, 5), (4, 100))
"""Clients and window of the load that warms Kafka up."""
_MANY = 1 << 40
"""More records than any run appends: the time ends the run."""
_FILL_WINDOW = 2_000
"""The open appends of the one client that fills the log that is read."""
_FILL_SECONDS = 300.0
"""How long it may take to fill the log that is read."""


class Kafka(Peer):
    """Kafka, which flushes each record before it is acknowledged."""

    @override
    async def describe(self) -> Description:
        _, version = await kafka_jars()
        return Description(
            "Kafka",
            version,
            durability="all replicas in sync (3, at least 2) have flushed: acks=all, "
            "min.insync.replicas=2, flush.messages=1; by default Kafka does not flush before it "
            "acknowledges",
            lock=None,
        )

    @override
    @asynccontextmanager
    async def start(self) -> AsyncIterator[RunningPeer]:
        jars, _ = await kafka_jars()
        with tempfile.TemporaryDirectory(prefix="waltz-peers-") as directory:
            home = Path(directory)
            async with running_servers() as servers:
                brokers = await _start_brokers(servers, home, jars)
                command = _java(jars, "1g", SOURCE / "KafkaLoad.java", brokers)
                async with load_program(*command, log=home / "load.log") as program:
                    yield _RunningKafka(servers, program)


class _RunningKafka(RunningPeer):
    def __init__(self, servers: Servers, program: LoadProgram) -> None:
        self._servers = servers
        self._program = program
        self._topics = count()

    @override
    async def warm_up(self, scale: float) -> None:
        seconds = WARM_UP_SECONDS * scale / len(_WARM_UP_SHAPES)
        for clients, window in _WARM_UP_SHAPES:
            await self._open(await self._create(_FLUSH_EACH), clients, window, size=512)
            await self._program.command("append", _MANY, seconds)
            await self._program.command("close")

    @override
    async def append(self, load: PeerLoad) -> Measured:
        assert not load.locks, "Kafka has no append that can be refused for a conflict"
        await self._open(await self._create(_FLUSH_EACH), load.clients, load.window, load.size)
        return await self._program.append(load.records, self._servers)

    @override
    async def read(self, size: int, records: int) -> Mapping[str, ReadRun]:
        # Only the reading counts, so the topic is filled without flushes.
        topic = await self._create(_FLUSH_BY_DEFAULT)
        await self._open(topic, 1, _FILL_WINDOW, size)
        filled = await self._program.command("append", records, _FILL_SECONDS)
        assert filled["records"] == records, f"only {filled['records']} of {records} appended"
        await self._program.command("close")
        # This first read lets Java compile its code.
        await self._program.command("read", topic, records)
        before = self._servers.cpu_seconds()
        result = await self._program.command("read", topic, records)
        used = self._servers.cpu_seconds() - before
        return {"consumer, in Java": ReadRun(**result, server_seconds=used)}

    async def _create(self, flush_messages: int) -> str:
        """Create a topic with `_FLUSH_EACH` or `_FLUSH_BY_DEFAULT`; return its name."""
        topic = f"log{next(self._topics)}"
        await self._program.command("create", topic, flush_messages)
        return topic

    async def _open(self, topic: str, clients: int, window: int, size: int) -> None:
        await self._program.command("open", topic, clients, window, size)


def broker_settings(number: int, ports: Sequence[int], voter_ports: Sequence[int]) -> str:
    """Return the settings of a broker, without those of its files."""
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(voter_ports))
    client, voter = f"127.0.0.1:{ports[number]}", f"127.0.0.1:{voter_ports[number]}"
    return (
        "process.roles=broker,controller\n"
        f"node.id={number}\n"
        f"controller.quorum.voters={voters}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=CLIENTS\n"
        f"listeners=CLIENTS://{client},CONTROLLER://{voter}\n"
        f"advertised.listeners=CLIENTS://{client}\n"
        "auto.create.topics.enable=false\n"
    )


async def _start_brokers(servers: Servers, home: Path, jars: Path) -> str:
    """Start the brokers, and return their addresses for clients."""
    # One call for all ports: two calls could return the same port.
    all_ports = free_ports(2 * _BROKERS)
    ports, voter_ports = all_ports[:_BROKERS], all_ports[_BROKERS:]
    configs = []
    for number in range(_BROKERS):
        config = home / f"k{number}.properties"
        settings = broker_settings(number, ports, voter_ports)
        config.write_text(f"{settings}log.dirs={home / f'k{number}'}\n")
        configs.append(config)
    for config in configs:
        format_logs = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", config)
        await run_command(*_java(jars, "256m", *format_logs))
    # All brokers start at the same time: each listens only when a majority of the controllers has
    # elected a leader.
    starts = (
        servers.start(
            _java(jars, "1g", "kafka.Kafka", config), port, config.with_suffix(".log"), cwd=home
        )
        for config, port in zip(configs, ports, strict=True)
    )
    await asyncio.gather(*starts)
    return ",".join(f"127.0.0.1:{port}" for port in ports)


def _java(jars: Path, heap: str, *arguments: str | Path) -> list[str | Path]:
    """Return a command with the classes of Kafka and a fixed heap."""
    sizes = (f"-Xms{heap}", f"-Xmx{heap}")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", *sizes, quiet, "-cp", f"{jars}/*", *arguments]
