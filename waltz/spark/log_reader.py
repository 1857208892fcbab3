"""Read the log for Spark: one client on one event loop. Touches the network and ZooKeeper.

Spark calls from one thread and takes one batch after the other. The event loop runs only while
Spark waits for a batch. Before a batch is returned, the next range of records is requested. So this
range arrives in the socket's buffer while Spark processes the batch. Memory is bounded by two
ranges, for slices of any length (`test_worker_memory_is_bounded`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from waltz.client import (
    Client,
    ClientAhead,
    ClusterUnreachable,
    RecordRange,
    WaltzError,
    connect,
)
from waltz.client.core.arrow_records import RecordsDamaged, stored_to_arrow, to_arrow
from waltz.client.core.errors import no_answer_of_zookeeper
from waltz.client.replica_reader import ReplicaReader, WantedRecords
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import TlsConfig
from waltz.protocol.records import RecordBatch
from waltz.protocol.stored import StoredBatch
from waltz.runtime.memory import keep_freed_memory
from waltz.spark.core.slices import Sample, Slice

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UncheckedRecords:
    """Records of a replica, which may be damaged."""

    batch: StoredBatch

    @property
    def count(self) -> int:
        """How many records they are, if they are not damaged."""
        return self.batch.count


Records = RecordBatch | StoredBatch | UncheckedRecords
"""Records of a server, which the client has checked, or unchecked records of a replica.

A server sends records in the form of the protocol (RecordBatch) or of the disk (StoredBatch)."""

_CONNECT_SECONDS = 10.0
"""The most time for opening connections."""
_BATCH_ROWS = 8192
"""How many records one request reads at most."""
_BATCH_BYTES = 4 << 20
"""How many bytes of records one request reads, unless its first record is larger."""
_SAMPLE_ROWS = 256
"""How many records a sample has at most."""
_SAMPLE_BYTES = 64 << 10
"""How many bytes a sample has at most, unless its first record is larger."""


class ReadTimedOut(WaltzError):
    """Servers or storages did not answer the reader in time."""


class LogEndsBefore(WaltzError):
    """A log has become shorter than it was when Spark planned the read."""

    def __init__(self, partition: int, transaction_id: int, mark: int) -> None:
        super().__init__(
            f"partition {partition} has no transaction {transaction_id} any more: its log ends at "
            f"{mark}. The log was lost and restored, or the address names another cluster now: "
            "check the cluster, and begin a new query with a new checkpoint"
        )
        self.partition = partition
        self.transaction_id = transaction_id
        self.mark = mark


@dataclass(frozen=True, slots=True)
class ClusterLocation:
    """The cluster of a source or sink, and how to connect to it.

    ``root`` is the cluster's znode. If ``tls`` is None, the servers' declaration in ZooKeeper says
    whether ports use TLS. ``timeout_seconds`` is the time limit for each answer. ``access`` says
    which addresses of servers and storages are dialed.
    """

    zookeeper: str
    root: str
    tls: TlsConfig | None
    timeout_seconds: float
    zookeeper_access: ZooKeeperAccess = OPEN_ACCESS
    access: Access = "inside"


class SparkLogReader:
    """A client of one cluster for one thread. Close it, or let the process end."""

    def __init__(self, location: ClusterLocation) -> None:
        """Connect. Raises the errors of `waltz.connect`."""
        self._location = location
        self._loop = asyncio.new_event_loop()
        self._replicas: ReplicaReader | None = None
        self._cluster_key: UUID | None = None
        try:
            self._client = self._run(self._connect())
        except BaseException:
            self._loop.close()
            raise

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has."""
        return self._client.num_partitions

    def cluster_key(self) -> UUID:
        """Return the key of the cluster. Raises ClusterNotFound, ClusterUnreachable.

        It is read once, so that a stream continues while ZooKeeper does not answer.
        """
        if self._cluster_key is None:
            self._cluster_key = self._run(self._read_cluster_key())
        return self._cluster_key

    def marks(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the high-water marks of ``partitions``. Raises ReadTimedOut."""
        wanted = tuple(partitions)

        async def fetch() -> list[int]:
            return await asyncio.gather(*map(self._client.high_water_mark, wanted))

        cluster = f"{self._location.zookeeper}{self._location.root}"
        marks = self._run(
            self._in_time(fetch(), f"not every partition of {cluster} returned its high-water mark")
        )
        return dict(zip(wanted, marks, strict=True))

    def confirmed_marks(self, starts: Mapping[int, int]) -> dict[int, int]:
        """Return the high-water marks; ``starts`` has the next transaction to read per partition.

        Normally a start is at most the mark plus one, because the stream has read only committed
        transactions. A lower mark has one of two reasons. Either the log has become shorter, or the
        mark is old: it comes from a server that has not noticed that another server owns the
        partition now. With an old mark the stream would go back and read transactions twice.

        So if a mark is lower, the transaction at the start is requested. The client repeats this
        request until an answer has records or a mark that fits the start. It accepts a lower mark
        only after `AHEAD_CONFIRMATIONS` (`waltz.client.core.mount`) answers with a lower mark.
        Meanwhile an old server has time to notice that it has lost the partition.

        Raises ReadTimedOut, and the errors of `Client.bulk`.
        """
        marks = self.marks(starts)
        for partition, start in starts.items():
            if marks[partition] < start - 1:
                marks[partition] = self._run(self._confirmed_mark(partition, start))
        return marks

    def sample(self, firsts: Iterable[tuple[int, int]]) -> dict[int, Sample]:
        """Read a few transactions of each partition; return how many rows and bytes they are.

        ``firsts`` are pairs of a partition and the id of the first transaction, which must be in
        the log. Raises the errors of `read`.
        """
        wanted = tuple(firsts)

        async def fetch() -> list[RecordRange]:
            return await asyncio.gather(
                *(self._read_sample(partition, first) for partition, first in wanted)
            )

        answers = self._run(self._in_time(fetch(), "not every partition returned a sample"))
        return {
            partition: Sample(answer.records.count, len(answer.records.wire))
            for (partition, _), answer in zip(wanted, answers, strict=True)
        }

    def read(self, part: Slice, *, from_replicas: bool = False) -> Generator[Any, None, None]:
        """Yield the transactions of ``part`` in order, as Arrow batches.

        With ``from_replicas``, records are read from replicas. Servers are used only for records
        that no replica returns, and for the rest of the slice after a replica has returned damaged
        records.

        Raises ReadTimedOut, LogEndsBefore, and the errors of `Client.bulk`.
        """
        first = part.first
        while first <= part.last:
            remaining = Slice(part.partition, first, part.last)
            with closing(self._read_undecoded(remaining, from_replicas)) as ranges:
                for records in ranges:
                    try:
                        batch = _as_arrow(records, part.partition, first)
                    except RecordsDamaged as damaged:
                        assert from_replicas, "the client has checked records from servers"
                        log.warning(
                            "partition %d: %s; reading the rest from servers",
                            part.partition,
                            damaged,
                        )
                        from_replicas = False
                        break  # The outer loop continues with the record ``first``.
                    first += batch.num_rows
                    yield batch

    def _read_undecoded(self, part: Slice, from_replicas: bool) -> Generator[Records, None, None]:
        """Yield the transactions of ``part`` in order, undecoded, range by range."""
        ranges = self._prefetch(part, from_replicas)
        try:
            while (records := self._run(anext(ranges, None))) is not None:
                yield records
        finally:
            self._run(ranges.aclose())

    def close(self) -> None:
        """Close the connections."""
        try:
            self._run(self._client.close())
        finally:
            try:
                if self._replicas is not None:
                    self._run(self._replicas.close())
            finally:
                self._loop.close()

    async def _connect(self) -> Client:
        location = self._location
        seconds = min(location.timeout_seconds, _CONNECT_SECONDS)
        return await connect(
            location.zookeeper,
            root=location.root,
            tls=location.tls,
            access=location.access,
            zookeeper_access=location.zookeeper_access,
            connect_timeout=seconds,
            answer_timeout=None,  # `_in_time` limits each wait.
        )

    async def _read_cluster_key(self) -> UUID:
        seconds = self._location.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._client.cluster_key()
        except TimeoutError:
            raise no_answer_of_zookeeper(seconds) from None

    async def _prefetch(self, part: Slice, from_replicas: bool) -> AsyncGenerator[Records, None]:
        """Yield ranges of the transactions of ``part``; request the next one before each yield."""
        first = part.first
        request = self._request(part, first, from_replicas)
        try:
            while first <= part.last:
                # The time limit is applied here: a limit inside the task would also count the time
                # while the loop does not run.
                records = await self._in_time(
                    request, f"partition {part.partition} sent no records"
                )
                first += records.count
                if first <= part.last:
                    request = self._request(part, first, from_replicas)
                    # Send the request before the loop stops running.
                    await asyncio.sleep(0)
                yield records
        finally:
            request.cancel()
            with suppress(asyncio.CancelledError, WaltzError):
                await request

    async def _confirmed_mark(self, partition: int, start: int) -> int:
        """Return the mark that a read at ``start`` shows; see `confirmed_marks`."""
        work = self._client.bulk.headers(partition, start, max_headers=1)
        try:
            answer = await self._in_time(work, f"partition {partition} did not confirm its end")
        except ClientAhead as ahead:
            return ahead.log_mark
        return answer.high_water_mark

    def _request(self, part: Slice, first: int, from_replicas: bool) -> asyncio.Task[Records]:
        """Start a request for records of ``part`` from ``first`` on."""
        rows = min(_BATCH_ROWS, part.last - first + 1)
        if from_replicas:
            wanted = WantedRecords(
                part.partition, first, part.last, max_records=rows, max_bytes=_BATCH_BYTES
            )
            return asyncio.ensure_future(self._from_replicas(wanted))
        return asyncio.ensure_future(self._from_server(part.partition, first, rows))

    async def _from_replicas(self, wanted: WantedRecords) -> Records:
        """Return records from a replica, or from the server if no replica returns any."""
        if self._replicas is None:
            location = self._location
            self._replicas = await ReplicaReader.connect(
                location.zookeeper,
                location.root,
                location.tls,
                location.zookeeper_access,
                access=location.access,
                connect_seconds=_CONNECT_SECONDS,
            )
        records = await self._replicas.read_records(wanted)
        if records is None:
            return await self._from_server(wanted.partition, wanted.first_id, wanted.max_records)
        return UncheckedRecords(records)

    async def _from_server(self, partition: int, first: int, rows: int) -> Records:
        """Return one record or more, from ``first`` on, from the server. Raises LogEndsBefore."""
        bulk = self._client.bulk
        records, mark = await bulk.records_in_any_form(partition, first, rows, _BATCH_BYTES)
        if not records.count:
            raise LogEndsBefore(partition, first, mark)
        return records

    async def _read_sample(self, partition: int, first: int) -> RecordRange:
        """Return records for a sample. Raises LogEndsBefore if there is none."""
        answer = await self._client.bulk.records(
            partition, first, max_records=_SAMPLE_ROWS, max_bytes=_SAMPLE_BYTES
        )
        if not answer.records.count:
            raise LogEndsBefore(partition, first, answer.high_water_mark)
        return answer

    def _run(self, work: Awaitable[T]) -> T:
        """Run the event loop until ``work`` is done; return its result."""

        async def wait() -> T:
            return await work

        return self._loop.run_until_complete(wait())

    async def _in_time(self, work: Awaitable[T], missing: str) -> T:
        """Await ``work`` and return its result. Raises ReadTimedOut.

        ``missing`` begins the error text: it says which answer is missing.
        """
        seconds = self._location.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise ReadTimedOut(
                f"{missing} within {seconds:g} s: check that servers and storages "
                "are running and reachable, or raise the option timeoutSeconds"
            ) from None


def _as_arrow(records: Records, partition: int, first: int) -> Any:
    """Return an Arrow batch of records of a partition, from ``first`` on. Raises RecordsDamaged."""
    match records:
        case UncheckedRecords(batch):
            return stored_to_arrow(batch, partition, first)
        case RecordBatch() | StoredBatch():
            return to_arrow(records)


class ReaderCache:
    """The readers of one worker process, by cluster; the process runs one task at a time."""

    def __init__(self) -> None:
        self._open: dict[ClusterLocation, SparkLogReader] = {}

    def open(self, location: ClusterLocation) -> SparkLogReader:
        """Return the reader of a cluster; its connections stay open from task to task.

        Raises the errors of `waltz.connect`.
        """
        reader = self._open.get(location)
        if reader is None:
            # Each batch needs about as much memory as the batch before it has freed. The process
            # keeps that memory, instead of returning it to the system and requesting it again.
            keep_freed_memory()
            # Spark's workers collect garbage after each task. Exclude the objects of the modules,
            # which live as long as the process.
            gc.freeze()
            reader = self._open[location] = SparkLogReader(location)
        return reader

    def forget(self, location: ClusterLocation) -> None:
        """Close the reader of a cluster, so that `open` opens new connections."""
        reader = self._open.pop(location, None)
        if reader is not None:
            with suppress(ClusterUnreachable):
                reader.close()


READER_CACHE = ReaderCache()
"""The cache of this process: Spark offers tasks no place to keep connections."""
