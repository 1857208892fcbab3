"""Generate load: many clients on one event loop, each with a window of open appends.

This program encodes appends itself instead of using the client library, because the server is to be
measured and not the library. So it shares no code with ``waltz bench``. An append is *open* until
the server has answered it, which is after an fdatasync on a quorum of storages. Only answered
appends count.

    python -m bench.load '{"host": …, "port": …, …}'

The argument is a `Load` as JSON. The program prints a `LoadResult` as JSON. Touches the network.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from zlib import crc32

from waltz.net import FrameConnection, FrameHandler, TlsConfig, dial
from waltz.protocol import CLIENT_SERVER, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import OutcomeKind
from waltz.protocol.client_numbers import ANSWERED_APPEND_TYPE
from waltz.runtime.process import run_loop

_PREFIX_BYTES = struct.calcsize(">bhi")  # magic number, version, length of the body
# The prefix, then message type, request id (4 numbers), client's mark, number of write locks.
_APPEND = struct.Struct(">bhibiiiiqi")
_LOCK = struct.Struct(">i")
_NO_OTHER_LOCKS = struct.pack(">ii", 0, 0)  # numbers of read locks and append locks
_LOCK_FACTOR = 2654435761
"""A sequence number multiplied by this factor gives a lock id. The ids spread over all numbers, so
that two appends seldom have the same lock."""
_VERSION = max(CLIENT_SERVER.versions)


@dataclass(frozen=True, slots=True)
class Load:
    """One run: the server, and the size of the load."""

    host: str
    port: int
    generations: dict[int, int]
    """The generation of each partition to append to, by the partition's number."""
    clients: int
    window: int
    """The number of appends that a client keeps open."""
    size: int
    """The number of bytes of a record."""
    records: int
    """The number of records of all clients together."""
    locks: bool
    """Whether every append has one lock with a pseudo-random id."""
    tls: bool
    first_client_id: int
    """The id of the first client; the ids of the others follow it."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a run. ``cpu_seconds`` is the CPU time of the load generator.

    The latencies are those of appends from their sending to the arrival of their answers.
    """

    seconds: float
    committed: int
    lock_failures: int
    p50_ms: float
    p99_ms: float
    cpu_seconds: float


class LoadClient(FrameHandler):
    """One connection that keeps ``window`` appends open.

    Its appends go to its ``partitions`` in turn. ``share`` is how many appends it makes. A client
    must *mount* a partition before it appends: this registers its connection. ``mounted`` is set
    when all partitions are mounted, ``done`` when every append is committed. Both get an error if
    the connection is lost before.
    """

    def __init__(self, load: Load, client_id: int, partitions: Sequence[int], share: int) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.mounted = asyncio.get_running_loop().create_future()
        self.latencies: list[float] = []
        self.lock_failures = 0
        self._load = load
        self._client_id = client_id
        self._partitions = partitions
        self._next_partition = cycle(partitions)
        self._unmounted = len(partitions)
        """How many partitions are not mounted yet."""
        self._unsent = share
        """The number of appends that must still be sent. A refused append counts again."""
        self._open = 0
        """The number of open appends."""
        self._seq = 0
        """The sequence number of the last append that was sent."""
        self._marks = dict.fromkeys(partitions, -1)
        """The high-water mark of each partition that the server has sent last."""
        self._sent: dict[int, float] = {}
        """When each open append was sent, by its sequence number."""
        data = os.urandom(load.size)
        # The header of the transaction, then the length, the bytes and the checksum of its data.
        content = struct.pack(">ii", 0, len(data)) + data + struct.pack(">I", crc32(data))
        self._tail = _NO_OTHER_LOCKS + content
        """The part of every append after its write locks."""
        locks_bytes = _LOCK.size * int(load.locks)
        self._length = _APPEND.size - _PREFIX_BYTES + locks_bytes + len(self._tail)
        """The length of the body of every append."""
        self._connection: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        """Request the high-water mark of each partition; `received` then mounts the partition."""
        self._connection = connection
        for partition in self._partitions:
            generation = self._load.generations[partition]
            # 0 is the sequence number of all requests that are no appends.
            self._send(cs.HighWaterMarkRequest(ReqId(self._client_id, generation, partition, 0)))

    def received(self, bodies: list[bytes]) -> None:
        """Mount partitions; note the outcomes of appends, and send new appends in their place."""
        ended = 0  # How many appends are committed or refused now.
        for body in bodies:
            message = cs.decode(body, _VERSION)
            match message:
                case cs.AppendAnswers():
                    ended += self._note_outcomes(message)
                case cs.HighWaterMarkResponse(req_id=req_id, transaction_id=mark):
                    self._marks[req_id.partition] = mark
                    # 0 is the number of this client's only connection. Its appends are answered, so
                    # it needs no feed.
                    self._send(cs.MountRequest(req_id, mark, seq_num=0, fed=False))
                case cs.MountResponse(state=cs.MountState.READY):
                    self._unmounted -= 1
                    if not self._unmounted:
                        self.mounted.set_result(None)
                case _:
                    raise AssertionError(f"unexpected {message}")
        if ended:
            self._open -= ended
            self.fill()
        if not self._unsent and not self._open and not self.done.done():
            self.done.set_result(None)

    def lost(self, reason: str) -> None:
        """End the run with an error, unless this client is done."""
        for future in (self.mounted, self.done):
            if not future.done():
                future.set_exception(ConnectionError(reason))

    def fill(self) -> None:
        """Send as many appends as the window has room for, in one write."""
        count = min(self._load.window - self._open, self._unsent)
        if count <= 0:
            return
        now = time.perf_counter()
        parts: list[bytes] = []
        locks, tail, generations = self._load.locks, self._tail, self._load.generations
        for _ in range(count):
            self._seq += 1
            partition = next(self._next_partition)
            parts.append(
                _APPEND.pack(
                    CLIENT_SERVER.magic, _VERSION, self._length, ANSWERED_APPEND_TYPE,
                    self._client_id, generations[partition], partition,
                    self._seq, self._marks[partition], int(locks),
                )
            )  # fmt: skip
            if locks:
                lock = (self._seq * _LOCK_FACTOR + self._client_id) & 0x7FFF_FFFF
                parts.append(_LOCK.pack(lock))
            parts.append(tail)
            self._sent[self._seq] = now
        self._open += count
        self._unsent -= count
        assert self._connection is not None
        self._connection.send(b"".join(parts))

    def _note_outcomes(self, message: cs.AppendAnswers) -> int:
        """Note the outcomes of appends, and return their number."""
        sent, now = self._sent, time.perf_counter()
        self._marks[message.req_id.partition] = message.high_water_mark
        for answer in message.answers:
            begun = sent.pop(answer.seq)
            match answer.kind:
                case OutcomeKind.COMMITTED:
                    self.latencies.append(now - begun)
                case OutcomeKind.REFUSED:
                    self.lock_failures += 1
                    self._unsent += 1
                case _:
                    raise AssertionError(f"unexpected {answer}")
        return len(message.answers)

    def _send(self, message: cs.Message) -> None:
        assert self._connection is not None
        self._connection.send(cs.encode(message, _VERSION))


async def run(load: Load) -> LoadResult:
    """Run the load until all appends are committed, and return the result."""
    partitions = list(load.generations)
    share = max(1, load.records // load.clients)
    clients = [
        LoadClient(load, load.first_client_id + i, _partitions_of(partitions, i, load), share)
        for i in range(load.clients)
    ]
    tls = TlsConfig(enabled=load.tls)
    for client in clients:
        await dial(load.host, load.port, CLIENT_SERVER.limited_to(_VERSION), client, tls)
    await asyncio.gather(*(client.mounted for client in clients))
    begun, cpu_begun = time.perf_counter(), time.process_time()
    for client in clients:
        client.fill()
    await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - begun
    latencies = sorted(latency for client in clients for latency in client.latencies)
    return LoadResult(
        seconds,
        len(latencies),
        sum(client.lock_failures for client in clients),
        latencies[len(latencies) // 2] * 1000,
        latencies[int(len(latencies) * 0.99)] * 1000,
        time.process_time() - cpu_begun,
    )


def _partitions_of(partitions: Sequence[int], client: int, load: Load) -> Sequence[int]:
    """Return a client's partitions: one, or several if there are more partitions than clients."""
    if len(partitions) > load.clients:
        return partitions[client :: load.clients]
    return (partitions[client % len(partitions)],)


async def _main(load: Load) -> None:
    print(json.dumps(asdict(await run(load))), flush=True)


if __name__ == "__main__":
    fields = json.loads(sys.argv[1])
    # The keys of an object in JSON are texts.
    fields["generations"] = {int(p): g for p, g in fields["generations"].items()}
    run_loop(_main(Load(**fields)))
