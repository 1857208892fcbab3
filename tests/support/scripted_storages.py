"""Simulate storages, and a driver that performs a partition's effects one by one.

The storages follow the rules of spec/disk.md section 9. `settle` performs effects and answers
requests, except those that the test holds back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from waltz.metadata.core.formats import NEW_PARTITION, PartitionMetadata
from waltz.net.core.backoff import Backoff
from waltz.protocol import Record, RecordBatch, RecordHeader, ReqId, checksum
from waltz.protocol import storage as st
from waltz.protocol.failures import RpcFailure
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import (
    ConnectStorages,
    ReadMetadata,
    Ready,
    ScheduleTurn,
    SendToClient,
    SendToStorage,
    StartTimer,
    Timer,
    WriteLog,
    WriteMetadata,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import Partition
from waltz_server.core.reads.recent_records import Bounds, records_within
from waltz_server.core.replication.store_partition import StorePartition
from waltz_server.core.store_reports import AppendsCommitted, StoreReports

PARTITION = 0
_NO_CLIENT = ReqId(0, 0, PARTITION, 0)


def record(transaction_id: int, text: str | None = None, req_id: ReqId = _NO_CLIENT) -> Record:
    """Return a record whose data is ``text``, by default its own id."""
    data = (text if text is not None else str(transaction_id)).encode()
    return Record(transaction_id, req_id, 0, data, checksum(data))


def append(
    text: str,
    *,
    client: int = 1,
    generation: int = 1,
    seq: int = 0,
    mark: int = -1,
    write: tuple[int, ...] = (),
    read: tuple[int, ...] = (),
    lock_only: tuple[int, ...] = (),
    header: int = 0,
) -> Append:
    """Return an append as the server's codec makes it."""
    req_id = ReqId(client, generation, PARTITION, seq)
    data = text.encode()
    tail = Record(0, req_id, header, data, checksum(data)).encode()[24:]
    return Append(client, generation, req_id.encode(), tail, mark, write, read, lock_only)


class Refusal(Exception):
    """A request that the storage refuses."""


class ScriptedStorage:
    """One replica: a log, the persisted session and marks, and the fence, which a restart drops."""

    def __init__(
        self, name: str, last: int = -1, session: int = -1, low: int = -1, local: int | None = None
    ) -> None:
        self.name = name
        self.records = [record(i) for i in range(last + 1)]
        self.session = session
        self.low = low
        self.local = min(low, last) if local is None else local
        self.fence = session
        self.refusing: dict[type, str] = {}
        """Request types that are refused, and why."""
        self.read_limit: int | None = None
        """Most records in one answer."""
        self.ignores_bytes = False
        """Whether an answer may be longer than was asked for, as those of older storages are."""

    @property
    def last(self) -> int:
        """The last id here, committed or not."""
        return len(self.records) - 1

    @property
    def texts(self) -> list[str]:
        """The data of all records."""
        return [r.data.decode() for r in self.records]

    def restart(self) -> None:
        """Forget what is not on disk: the fence."""
        self.fence = self.session

    def empty(self) -> None:
        """Lose the disk; the partition is assigned again."""
        self.__init__(self.name)  # type: ignore[misc]

    def handle(self, request: Any) -> Any:
        """Do a request and return its answer."""
        context = (request.session_id, request.seq_num, request.partition)
        try:
            return self._handle(request, context)
        except Refusal as refused:
            return st.FailureResponse(*context, RpcFailure(str(refused)))

    def _handle(self, request: Any, context: tuple[int, int, int]) -> Any:
        self.fence = max(self.fence, request.session_id)
        if type(request) in self.refusing:
            raise Refusal(self.refusing[type(request)])
        if request.session_id != self.fence:
            raise Refusal(
                f"session id has changed to {self.fence}, but request context contains "
                f"{request.session_id}"
            )
        match request:
            case st.LastSessionInfoRequest():
                return st.LastSessionInfoResponse(*context, self.session, self.low, self.local)
            case st.MaxTransactionIdRequest():
                return st.MaxTransactionIdResponse(*context, self.last)
            case st.TruncateRequest() | st.TruncateBelowMarkRequest():
                self._truncate(request)
                return st.MaxTransactionIdResponse(*context, self.last)
            case st.SetLowWaterMarkRequest(low_water_mark=mark):
                self._begin(request.session_id, mark)
                return st.SuccessResponse(*context)
            case st.AppendRequest(records=records):
                self._append(records)
                return st.SuccessResponse(*context)
            case st.RecordListRequest(first_id=first, max_records=count):
                return st.RecordListResponse(*context, RecordBatch.of(self._read(first, count)))
            case st.BoundedRecordListRequest(first_id=first, max_records=count):
                batch = RecordBatch.of(self._read(first, count))
                bounds = Bounds(count, (1 << 30) if self.ignores_bytes else request.max_bytes)
                return st.RecordListResponse(
                    *context, records_within(batch, 0, bounds, at_least_one=True)
                )
            case st.RecordHeaderListRequest(first_id=first, max_records=count):
                found = self._read(first, count)
                headers = (RecordHeader(r.transaction_id, r.req_id, r.header) for r in found)
                return st.RecordHeaderListResponse(*context, tuple(headers))
            case _:
                raise AssertionError(request)

    def _read(self, first: int, count: int) -> list[Record]:
        limit = count if self.read_limit is None else min(count, self.read_limit)
        return self.records[first : first + limit]

    def _truncate(self, request: st.TruncateRequest | st.TruncateBelowMarkRequest) -> None:
        keep = request.transaction_id
        if isinstance(request, st.TruncateBelowMarkRequest):
            if request.low_water_mark != self.low:
                raise Refusal(f"the low-water mark is {self.low}, not {request.low_water_mark}")
        elif keep < self.low:
            raise Refusal(f"cannot truncate to {keep}: the low-water mark is {self.low}")
        del self.records[keep + 1 :]

    def _begin(self, session: int, mark: int) -> None:
        if self.last > mark:
            raise Refusal("low-water mark is lower than the max transaction id")
        if session < self.session or mark < self.low or self.last < self.local:
            raise Refusal("session and marks never go back")
        self.session, self.low, self.local = session, mark, self.last

    def _append(self, records: RecordBatch) -> None:
        for each in records:
            if each.transaction_id != self.last + 1:
                raise Refusal(f"transaction {each.transaction_id} out of order after {self.last}")
            self.records.append(each)


class World:
    """Performs the effects of a partition, or of a store without a partition.

    ``core`` is the `Partition` or the `StorePartition`; ``take_ready`` takes the effects, and what
    else the tests want to see as events.
    """

    def __init__(
        self,
        core: Any,
        store: StorePartition,
        take_ready: Callable[[], list[Any]],
        storages: Iterable[ScriptedStorage],
    ) -> None:
        self.core = core
        self.store = store
        self._take_ready = take_ready
        self.storages = {s.name: s for s in storages}
        self.up: set[str] = set()
        self.held: set[str] = set()
        """Storages whose answers do not come yet."""
        self.metadata: PartitionMetadata = NEW_PARTITION
        self.version = 0
        self.metadata_held = False
        self.metadata_orders: deque[ReadMetadata | WriteMetadata] = deque()
        self.watched: frozenset[str] = frozenset()
        self.calls: list[tuple[str, Any, Any]] = []
        """Storage, request, answer: everything that was done, in order."""
        self.events: list[Any] = []
        """Reports of the store, and frames for clients."""
        self.notes: list[str] = []
        self.wakes: list[StartTimer] = []
        self.turning = False
        self.on_call: Callable[[str, Any, Any], None] = lambda storage, request, answer: None
        self.on_write: Callable[[PartitionMetadata], None] = lambda value: None
        self._asked: deque[tuple[str, Any]] = deque()

    @classmethod
    def of_partition(cls, core: Partition, storages: Iterable[ScriptedStorage]) -> World:
        """Return the world of a partition."""
        return cls(core, core.store, core.take_ready, storages)

    @classmethod
    def of_store(
        cls, limits: ReplicationLimits, retry: Backoff, storages: Iterable[ScriptedStorage] = ()
    ) -> World:
        """Return the world of a store without a partition: its reports become events."""
        ready, reports = Ready(), StoreReports()
        store = StorePartition(PARTITION, limits, retry, ready, reports)
        return cls(store, store, lambda: [*reports.take(), *ready.take()], storages)

    # ---- actions of a test

    def settle(self) -> None:
        """Perform effects and answer requests until none are left."""
        while True:
            effects = self._take_ready()
            for effect in effects:
                self._perform(effect)
            if not effects and not self._answer_one():
                return

    def connect(self, *names: str) -> None:
        """Open the connections to some storages, all by default."""
        for name in names or tuple(self.storages):
            self.up.add(name)
            self.store.storage_up(name)
            self.settle()

    def cut(self, name: str) -> None:
        """Lose the connection to a storage: requests on it stay unanswered."""
        self.up.discard(name)
        lost = [request for storage, request in self._asked if storage == name]
        self._asked = deque(entry for entry in self._asked if entry[0] != name)
        for request in lost:
            self.store.answered(name, request, None, 0.0)
        self.store.storage_down(name)
        self.settle()

    def hold(self, *names: str) -> None:
        """Hold back the requests to these storages."""
        self.held |= set(names)

    def release(self, *names: str) -> None:
        """Perform the requests that were held back."""
        self.held -= set(names)
        self.settle()

    def waiting(self, name: str) -> list[Any]:
        """Return the requests that wait at a held storage."""
        return [request for storage, request in self._asked if storage == name]

    def let_one(self, name: str) -> None:
        """Do the oldest request that waits at a held storage."""
        entry = next(entry for entry in self._asked if entry[0] == name)
        self._asked.remove(entry)
        self._do(*entry)
        self.settle()

    def let_metadata(self) -> None:
        """Do the oldest metadata operation that waits."""
        self._do_metadata(self.metadata_orders.popleft())
        self.settle()

    def wake(self, purpose: type[Timer]) -> float:
        """Let the time of the oldest wake-up of a kind come; return how long it took."""
        wake = next(w for w in self.wakes if isinstance(w.timer, purpose))
        self.wakes.remove(wake)
        self.core.timer_expired(wake.timer)
        self.settle()
        return wake.seconds

    def turn(self) -> bool:
        """Give the feeds one turn if they asked for it; return whether they did."""
        if not self.turning:
            return False
        self.turning = False
        self.core.turn()
        self.settle()
        return True

    @property
    def active(self) -> frozenset[str]:
        """The replicas that take part in appends now."""
        return self.store.active_replicas

    def take_events(self) -> list[Any]:
        """Return the events since the last call."""
        taken, self.events = self.events, []
        return taken

    def committed(self) -> list[tuple[int, str]]:
        """Return id and data of everything committed so far."""
        return [
            (transaction_id, a.record_tail[8:-4].decode())
            for event in self.events
            if isinstance(event, AppendsCommitted)
            for transaction_id, a in enumerate(event.appends, event.first_id)
        ]

    def frames(self) -> list[SendToClient]:
        """Return what was sent to clients since the events were last taken."""
        return [event for event in self.events if isinstance(event, SendToClient)]

    # ---- effects

    def _perform(self, effect: Any) -> None:
        match effect:
            case SendToStorage(storage, request) if storage in self.up:
                self._asked.append((storage, request))
            case SendToStorage(storage, request):
                self.store.answered(storage, request, None, 0.0)
            case ConnectStorages(storages):
                self.watched = storages
                self.up &= storages
            case ReadMetadata() | WriteMetadata():
                self.metadata_orders.append(effect)
                if not self.metadata_held:
                    self._do_metadata(self.metadata_orders.popleft())
            case StartTimer():
                self.wakes.append(effect)
            case ScheduleTurn():
                self.turning = True
            case WriteLog(_, text):
                self.notes.append(text)
            case _:
                self.events.append(effect)

    def _do_metadata(self, order: ReadMetadata | WriteMetadata) -> None:
        match order:
            case ReadMetadata():
                self.store.metadata_read(order, self.metadata, self.version)
            case WriteMetadata(value, version) if version == self.version:
                self.metadata = value
                self.version += 1
                self.on_write(value)
                self.store.metadata_written(order, self.version)
            case _:
                self.store.metadata_failed(order, "version conflict")

    def _answer_one(self) -> bool:
        for entry in self._asked:
            if entry[0] not in self.held:
                self._asked.remove(entry)
                self._do(*entry)
                return True
        return False

    def _do(self, name: str, request: Any) -> None:
        answer = self.storages[name].handle(request)
        self.calls.append((name, request, answer))
        self.on_call(name, request, answer)
        self.store.answered(name, request, answer, 1.0)
