"""Perform the effects of a server's partition one by one, with storages in memory.

`World.settle` performs effects and answers requests, except those that the test holds back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.memory_storages import PARTITION, MemoryStorage
from waltz.metadata.core.formats import NEW_PARTITION, PartitionMetadata
from waltz.net.core.backoff import Backoff
from waltz.protocol import Record, ReqId, checksum
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
from waltz_server.core.replication.store_partition import StorePartition
from waltz_server.core.store_reports import AppendsCommitted, StoreReports


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
        storages: Iterable[MemoryStorage],
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
    def of_partition(cls, core: Partition, storages: Iterable[MemoryStorage]) -> World:
        """Return the world of a partition."""
        return cls(core, core.store, core.take_ready, storages)

    @classmethod
    def of_store(
        cls, limits: ReplicationLimits, retry: Backoff, storages: Iterable[MemoryStorage] = ()
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
