"""Run the processes to attack: a small cluster with a valid client, and a separate storage.

Mutated requests of servers and administrators may legitimately fence a storage, truncate it or
unassign its partitions, so they are sent to a node of a separate cluster. Touches processes, the
network and ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

import waltz
from tests.fuzz.directory_runs import batch
from tests.fuzz.target import Broken, hold
from tests.support.load import client_of
from waltz.admin import StorageAdmin
from waltz.local import LocalCluster, Shape
from waltz.local.child import ChildProcess
from waltz.metadata.core.formats import StoreParams, encode_id
from waltz.metadata.core.paths import Paths
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import ANY_VERSION
from waltz.net import RpcConnection, TlsConfig
from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE, ProtocolSpec, client_server, storage
from waltz.protocol import admin as admin_messages
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

HOST = "127.0.0.1"
_SPARE_ROOT = "/spare"
_SPARE_PARTITIONS = 3
_GROWTH_LIMIT_BYTES = 96 << 20
_PAGE_BYTES = 4096
_SECONDS = 20.0
_SHOWN_LINES = 40
_UNFORESEEN = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) |Traceback")
_HONEST_ID = 0x2A2B2C2D
_SMALL_CACHES = {"server.feedCacheSize": 1 << 20, "server.transactionDataCacheSize": 1 << 20}


@dataclass(slots=True)
class Log:
    """The output of a process, read as it grows."""

    path: Path
    offset: int = 0
    lines: list[str] = field(default_factory=list)

    def read_new_lines(self) -> list[str]:
        """Return the lines since `forget`."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self.offset += len(whole)
        self.lines += whole.decode(errors="replace").splitlines()
        return self.lines

    def of_peer(self, spec: ProtocolSpec, port: int) -> list[str]:
        """Return the lines about the peer with this port; another listener may have one too."""
        peer = re.compile(rf" {spec.name} connection (from|with) {re.escape(HOST)}:{port}\b")
        return [line for line in self.read_new_lines() if peer.search(line)]

    def forget(self) -> None:
        """Drop the lines so far."""
        self.read_new_lines()
        self.lines.clear()


@dataclass(frozen=True, slots=True)
class TargetPort:
    """A port to attack. ``spec`` is None for HTTP; ``tls`` is how a client connects."""

    name: str
    port: int
    log: Log
    spec: ProtocolSpec | None
    messages: Any
    tls: ssl.SSLContext | None


class Scene:
    """All processes; an async context manager."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self._folder = folder
        self._tls = TlsConfig(enabled=tls)
        shape = Shape(partitions=1, storages=1, servers=1, tls=tls)
        self.cluster = LocalCluster(folder / "cluster", shape, server_settings=_SMALL_CACHES)
        self.target_ports: list[TargetPort] = []
        self.logs: list[Log] = []
        self._stack = contextlib.AsyncExitStack()
        self._params = StoreParams(uuid.UUID(int=7), _SPARE_PARTITIONS)
        self._appended: dict[int, bytes] = {}
        self._read_until = -1
        self._sizes: dict[str, int] = {}

    async def __aenter__(self) -> Scene:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            await stack.enter_async_context(self._spare())
            await self._reserve_client_id()
            self.client: waltz.Client = await stack.enter_async_context(client_of(self.cluster))
            self._stack = stack.pop_all()
        self._find_target_ports()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _reserve_client_id(self) -> None:
        """Give the honest client an id that no session uses: records with it count as its own."""
        async with self.cluster.metadata() as metadata:
            path = Paths(self.cluster.root).client_id
            await metadata.store.set(path, encode_id(_HONEST_ID), ANY_VERSION)

    def pids(self) -> dict[str, int | None]:
        """Return the attacked processes; None for one that has ended."""
        pids = {name: pid for name, pid in self.cluster.pids().items() if name != "zookeeper"}
        return pids | {"spare": self._child.pid}

    def check_processes(self) -> None:
        """Check that all processes run, do not grow, and have logged no unexpected error."""
        for name, pid in self.pids().items():
            hold(pid is not None, f"{name} has ended")
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
            first = self._sizes.setdefault(name, size)
            hold(size < first + _GROWTH_LIMIT_BYTES, f"{name} grew from {first} to {size} bytes")
        for log in self.logs:
            new_lines = log.read_new_lines()
            bad = [n for n, line in enumerate(new_lines) if _UNFORESEEN.search(line)]
            if bad:
                shown = "\n".join(new_lines[bad[0] : bad[0] + _SHOWN_LINES])
                raise Broken(f"{log.path.name} says\n{shown}")

    async def append_as_valid_client(self, number: int) -> None:
        """Append as a well-behaved client, beside the sessions."""
        data = b"honest %d" % number
        async with asyncio.timeout(_SECONDS):
            self._appended[await self.client.append(0, data)] = data

    async def read_back(self) -> None:
        """Read the new part of the log; all appends of the honest client must be in it."""
        async with asyncio.timeout(_SECONDS):
            mark = await self.client.high_water_mark(0)
            stream = self.client.stream(0, after=self._read_until, until=mark, data=True)
            async for transaction in stream:
                self._read_until += 1
                hold(transaction.id == self._read_until, "the log has a gap")
                wanted = self._appended.pop(transaction.id, None)
                hold(wanted in (None, transaction.data), "an append was changed")
        hold(not self._appended, f"appends are lost: {sorted(self._appended)}")

    async def check_spare(self) -> None:
        """Check the partitions of the separate node, and that a new partition works."""
        async with asyncio.timeout(_SECONDS), await self._admin() as admin:
            await self._settle(admin)
            for partition in range(_SPARE_PARTITIONS):
                await self._spare_records(admin, partition)
            await admin.unassign([0], delete_files=True)
            await admin.assign([0])
            await self._switch_on(0)
            await self._use_spare()

    async def stop_spare(self) -> None:
        """Stop the separate node; its directory must open with the same records."""
        held = {}
        async with asyncio.timeout(_SECONDS), await self._admin() as admin:
            await self._settle(admin)
            for partition in range(_SPARE_PARTITIONS):
                held[partition] = await self._spare_records(admin, partition)
        await self._child.stop()
        hold(self._child.exit_status == 0, f"the node ended badly: {self._child.exit_report()}")
        key, partitions = self._params.key, self._params.num_partitions
        disk = PosixDisk(self._folder / "spare")
        directory = StorageDirectory(disk, key, partitions, LogOptions(lambda: 0))
        hold(not directory.refused, f"after a clean stop: {directory.refused}")
        for partition, wire in held.items():
            found = directory.partition(partition).records(0, 1 << 30).wire
            hold(found == wire, f"partition {partition} changed by stopping")
        directory.close()

    async def _settle(self, admin: StorageAdmin) -> None:
        """Assign all partitions, after the requests of closed connections are done.

        Files of an unassigned partition are opened again now; otherwise later, unexpectedly.
        """
        await admin.assign(range(_SPARE_PARTITIONS))

    async def _use_spare(self) -> None:
        cluster = self._params.key, self._params.num_partitions
        rpc = await RpcConnection.open_storage((HOST, self._ports["port"]), self._tls, cluster)
        session, records = 1, batch(0, 5, 1)
        await rpc.call(
            lambda seq: storage.SetLowWaterMarkRequest(session, seq, 0, -1), storage.SuccessResponse
        )
        await rpc.call(
            lambda seq: storage.AppendRequest(session, seq, 0, records), storage.SuccessResponse
        )
        answer = await rpc.call(
            lambda seq: storage.RecordListRequest(session, seq, 0, 0, 9), storage.RecordListResponse
        )
        hold(answer.records == records, "a new partition does not hold the appended records")
        rpc.close()

    async def _switch_on(self, partition: int) -> None:
        cluster = self._params.key, self._params.num_partitions
        rpc = await RpcConnection.open_admin((HOST, self._ports["admin"]), self._tls, cluster)
        await rpc.call(
            lambda seq: admin_messages.PartitionAvailableRequest(seq, (partition,), True),
            admin_messages.AdminSuccessResponse,
        )
        rpc.close()

    async def _spare_records(self, admin: StorageAdmin, partition: int) -> bytes:
        parts: list[bytes] = []
        count = 0
        while batch := await admin.records(partition, count, 1 << 20):
            ids = [record.transaction_id for record in batch]
            hold(ids == list(range(count, count + len(ids))), "the ids are not consecutive")
            parts.append(batch.wire)
            count += batch.count
        return b"".join(parts)

    async def _admin(self) -> StorageAdmin:
        address = f"{HOST}:{self._ports['port']}"
        return await StorageAdmin.open(address, self._ports["admin"], self._tls, self._params)

    @contextlib.asynccontextmanager
    async def _spare(self) -> AsyncIterator[None]:
        """Run the separate node."""
        folder, cluster = self._folder, self.cluster
        async with cluster.metadata() as metadata:
            await create_cluster(
                metadata.store, _SPARE_ROOT, "spare", _SPARE_PARTITIONS, key=self._params.key
            )
        data, ports, log = folder / "spare", folder / "spare.json", folder / "spare.log"
        data.mkdir()
        config = folder / "spare.yml"
        settings = {
            "zookeeper.connectString": cluster.zookeeper,
            "zookeeper.sessionTimeout": 6000,
            "cluster.root": _SPARE_ROOT,
            "storage.bind.host": HOST,
            "storage.port": 0,
            "storage.admin.port": 0,
            "storage.jetty.port": 0,
            "storage.directory": str(data),
            "storage.ports.file": str(ports),
            "storage.segment.size.threshold": 20_000,
            "storage.tls.enabled": self._tls.enabled,
        }
        config.write_text(yaml.safe_dump(settings))
        self._child = ChildProcess("spare", "waltz-storage", config, ports, log)
        self._child.start()
        try:
            await self._child.wait_until_ready(_SECONDS)
            self._ports: dict[str, int] = json.loads(ports.read_text())
            self._spare_log = Log(log)
            async with await self._admin() as admin:
                await admin.assign(range(_SPARE_PARTITIONS))
            yield
        finally:
            await self._child.stop()

    def _find_target_ports(self) -> None:
        server, layout = self.cluster.plan.servers[0], self.cluster.layout
        server_log = Log(layout.log("server/0"))
        own_storage, spare = Log(layout.log("storage/0")), self._spare_log
        self.logs = [server_log, own_storage, spare]
        context = self._tls.dialing_context()
        ports = self._ports
        own_http = self.cluster.plan.storages[0].http
        self.target_ports = [
            TargetPort("client", server.port, server_log, CLIENT_SERVER, client_server, context),
            TargetPort("storage", ports["port"], spare, STORAGE, storage, context),
            TargetPort("admin", ports["admin"], spare, ADMIN, admin_messages, context),
            TargetPort("http of the server", server.http, server_log, None, None, None),
            TargetPort("http of a storage", own_http, own_storage, None, None, None),
        ]
