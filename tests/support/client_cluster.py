"""Define a cluster for tests of clients: it records their messages, and faults follow from rules.

The servers and storages are real ones (`waltz.testing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from waltz.client import Appended, Draft
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import OwnedPartition
from waltz.protocol import CLIENT_SERVER, STORAGE, RecordBatch
from waltz.protocol.batches import MAX_BATCH_APPENDS
from waltz.protocol.client_numbers import APPEND_BATCH_SINCE
from waltz.protocol.client_server import RecordsResponse, TransactionDataResponse
from waltz.protocol.records import EMPTY_BATCH
from waltz.testing import FrameFault, FrameReplacement, FrameRule, InProcessClient, InProcessCluster
from waltz.testing.nodes import ROOT


def _no_fault(message: Any) -> None:
    return None


class ClientCluster(InProcessCluster):
    """A cluster whose servers offer ``versions`` to clients (None: all versions)."""

    def __init__(
        self, partitions: int = 1, *, servers: int = 1, versions: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(partitions, servers=servers)
        self.requests: list[Any] = []
        """The messages of clients, in order, except those of `fill`."""
        self.on_request: FrameRule = _no_fault
        self.holding: tuple[type, ...] = ()
        """The types of messages that are held until `release`, before the server gets them."""
        self.held: list[Any] = []
        self.clients: list[InProcessClient[Any]] = []
        """The clients of `client`, which are closed with the cluster."""
        self._fillers: set[int] = set()
        self._has_batches = versions is None or max(versions) >= APPEND_BATCH_SINCE
        self._generations: dict[int, int] = {}
        for server in self.servers:
            self.network.frame_rules["client", server.host] = self._request
            if versions is not None:
                server.versions = (CLIENT_SERVER.limited_to(*versions), STORAGE)

    def set_answer_rule(self, rule: FrameRule | None) -> None:
        """Decide about the messages from servers to clients by ``rule`` from now on."""
        for server in self.servers:
            if rule is None:
                self.network.frame_rules.pop((server.host, "client"), None)
            else:
                self.network.frame_rules[server.host, "client"] = rule

    def requests_of(self, kind: type) -> list[Any]:
        """Return the recorded messages of one type."""
        return [message for message in self.requests if isinstance(message, kind)]

    def release(self, count: int | None = None) -> None:
        """Let the oldest ``count`` held messages arrive (None: all)."""
        del self.held[: self.network.release_frames(count)]

    async def client(self, **options: Any) -> InProcessClient[Any]:
        """Open a client."""
        client: InProcessClient[Any] = await self.connect(**options)
        self.clients.append(client)
        return client

    async def fill(self, partition: int, count: int, size: int = 8) -> None:
        """Append ``count`` transactions of another client; the data of each is its own id."""
        async with self.connect() as filler:
            self._fillers.add(filler.client_id)
            first = await filler.high_water_mark(partition) + 1
            data = [b"%0*d" % (size, n) for n in range(first, first + count)]
            if self._has_batches:
                for at in range(0, count, MAX_BATCH_APPENDS):
                    drafts = [Draft(each) for each in data[at : at + MAX_BATCH_APPENDS]]
                    outcomes = await filler.bulk.append(partition, drafts)
                    assert all(isinstance(each, Appended) for each in outcomes)
            else:
                await asyncio.gather(*(filler.append(partition, each) for each in data))

    def owner(self, partition: int) -> int | None:
        """Return the number of the server that has the partition, None if none has it."""
        nodes = ((n, server.node) for n, server in enumerate(self.servers))
        return next((n for n, node in nodes if node and node.partition(partition)), None)

    def data_of(self, partition: int) -> list[bytes]:
        """Return the data of all transactions of a partition."""
        return [each.data for each in self.transactions(partition)]

    async def place(self, partition: int, server: int | None) -> None:
        """Assign a partition, in its next generation, to a server (None: to no server)."""
        metadata = Cluster(self.zookeeper.connect(), ROOT)
        membership = await metadata.membership()
        owned = dict(membership.assignment.servers)
        for server_id, entries in owned.items():
            for entry in entries:
                if entry.partition == partition:
                    self._generations[partition] = entry.generation
                    owned[server_id] = tuple(each for each in entries if each != entry)
        if server is not None:
            node = self.servers[server].node
            assert node is not None
            new = OwnedPartition(partition, self._generations[partition] + 1)
            owned[node.server_id] = (*owned.get(node.server_id, ()), new)
        assignment = replace(membership.assignment, servers=owned)
        await metadata.write_partition_assignment(assignment, membership.version)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        await super().close()

    def _request(self, message: Any) -> Any:
        if message.req_id.client_id in self._fillers:
            return None
        self.requests.append(message)
        if isinstance(message, self.holding):
            self.held.append(message)
            return FrameFault.HOLD
        return self.on_request(message)


@asynccontextmanager
async def connected(
    *, count: int = 0, partitions: int = 1, versions: tuple[int, ...] | None = None, **options: Any
) -> AsyncIterator[tuple[ClientCluster, InProcessClient[Any]]]:
    """Start a cluster whose partition 0 has ``count`` transactions; open a client of it."""
    async with ClientCluster(partitions, versions=versions) as cluster:
        if count:
            await cluster.fill(0, count)
        yield cluster, await cluster.client(**options)


def drop_first(count: int, kind: type) -> FrameRule:
    """Return a rule that drops the next ``count`` messages of one type."""
    left = count

    def rule(message: Any) -> FrameFault | None:
        nonlocal left
        if not left or not isinstance(message, kind):
            return None
        left -= 1
        return FrameFault.DROP

    return rule


def spoil_data(count: int) -> FrameRule:
    """Return a rule that gives the next ``count`` answers with data a wrong checksum."""
    left = count

    def rule(message: Any) -> FrameReplacement | None:
        nonlocal left
        match message:
            case TransactionDataResponse(error=None) if left:
                left -= 1
                return FrameReplacement(replace(message, checksum=message.checksum ^ 1))
            case RecordsResponse(records=records) if left and records.count:
                left -= 1
                first, *rest = records
                spoiled = replace(first, checksum=first.checksum ^ 1)
                return FrameReplacement(replace(message, records=RecordBatch.of([spoiled, *rest])))
        return None

    return rule


def refuse_data(count: int) -> FrameRule:
    """Return a rule that replaces the next ``count`` answers with data by errors."""
    left = count

    def rule(message: Any) -> FrameReplacement | None:
        nonlocal left
        if not left:
            return None
        match message:
            case TransactionDataResponse():
                left -= 1
                return FrameReplacement(replace(message, data=None, error="refused by the test"))
            case RecordsResponse():
                left -= 1
                return FrameReplacement(
                    replace(message, records=EMPTY_BATCH, error="refused by the test")
                )
        return None

    return rule


def cut_at(kind: type, *numbers: int) -> FrameRule:
    """Return a rule that cuts the connection before messages of one type, counted from 1."""
    seen = 0

    def rule(message: Any) -> FrameFault | None:
        nonlocal seen
        if not isinstance(message, kind):
            return None
        seen += 1
        return FrameFault.CUT if seen in numbers else None

    return rule
