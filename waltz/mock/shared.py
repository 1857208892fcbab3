"""The logs of a mock cluster, shared by clients on several threads and event loops. Threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from waltz.client import Appended, PartitionUnknown, Refused, Transaction
from waltz.client.core.batches import BatchOutcome
from waltz.mock.faults import Delivery, Draws, Faults
from waltz.mock.log import Entry, MockLog, Request
from waltz.protocol.records import NO_TRANSACTION


class SharedLogs:
    """The partitions of a mock cluster, their ordered faults, and the waits of clients."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        seed: int = 0,
        name: str = "mock",
        faults: Faults | None = None,
    ) -> None:
        if partitions < 1:
            raise ValueError(f"{partitions} partitions: a cluster has at least one")
        self.num_partitions = partitions
        self.name = name
        self.faults = faults or Faults()
        self._seed = seed
        self._clients = 0
        self._lock = threading.RLock()
        self._logs = [MockLog() for _ in range(partitions)]
        self._ordered: list[deque[Delivery]] = [deque() for _ in range(partitions)]
        self._ordered_conflicts = [0] * partitions
        self._suspended: dict[int, int] = {}
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def fail_next_append(self, partition: int, *, committed: bool) -> None:
        """Let the next append raise AppendUncertain; calls add up.

        ``committed`` decides whether the append is in the log.
        """
        self._check(partition)
        with self._lock:
            delivery = Delivery.UNCERTAIN_COMMITTED if committed else Delivery.UNCERTAIN_ABSENT
            self._ordered[partition].append(delivery)

    def fail_next_lock(self, partition: int) -> None:
        """Let the next append with write or read locks raise LockFailed; calls add up."""
        self._check(partition)
        with self._lock:
            self._ordered_conflicts[partition] += 1

    def suspend_feed(self, partition: int) -> None:
        """Stop the feed of the partition: streams get nothing new, and appends wait."""
        self._check(partition)
        with self._lock:
            self._suspended.setdefault(partition, self._logs[partition].mark)

    def resume_feed(self, partition: int) -> None:
        """Continue the feed of the partition."""
        self._check(partition)
        with self._lock:
            self._suspended.pop(partition, None)
            self.changed()

    def transactions(self, partition: int) -> list[Transaction[bytes]]:
        """Return all transactions of the partition's log, with their data as bytes."""
        self._check(partition)
        with self._lock:
            entries = list(self._logs[partition].entries)
        return [Transaction(partition, e.id, e.req_id, e.header, e.data) for e in entries]

    # The methods below are for clients and streams.

    def mark(self, partition: int) -> int:
        """Return the last id in the log."""
        with self._lock:
            return self._logs[partition].mark

    def fed(self, partition: int) -> int:
        """Return the last id that feeds show."""
        with self._lock:
            return self._suspended.get(partition, self._logs[partition].mark)

    def between(self, partition: int, after: int, until: int, most: int) -> Iterable[Entry]:
        """Return entries after ``after``, up to ``until`` and ``most`` of them."""
        with self._lock:
            return self._logs[partition].between(after, until, most)

    def new_client_id(self) -> int:
        """Return an id that no client has had."""
        with self._lock:
            self._clients += 1
            return self._clients

    def draws(self, client_id: int, partition: int) -> Draws:
        """Return the random draws of a client."""
        return Draws(self._seed, client_id, partition)

    def take(self, request: Request, draws: Draws) -> tuple[Delivery, int]:
        """Deliver an append, and append it to the log unless it is lost or refused.

        Returns the delivery and the transaction id; for CONFLICT the id of the conflict.
        """
        partition = request.req_id.partition
        with self._lock:
            log = self._logs[partition]
            delivery = self._delivery(
                partition, draws, checked=bool(request.write_locks + request.read_locks)
            )
            if delivery is Delivery.CONFLICT:
                return delivery, log.mark
            if delivery in (Delivery.LOST, Delivery.UNCERTAIN_ABSENT):
                return delivery, NO_TRANSACTION
            conflict = log.conflict(request)
            if conflict != NO_TRANSACTION:
                return Delivery.CONFLICT, conflict
            transaction_id = log.append(request)
            self.changed()
            return delivery, transaction_id

    def take_batch(
        self, requests: Sequence[Request], draws: Draws
    ) -> tuple[Delivery, list[BatchOutcome]]:
        """Deliver a batch at one instant; unless it is lost, append the drafts that are not
        refused.

        Returns the delivery and the outcome of each append, none if the batch did not arrive. For
        CONFLICT the first append with write or read locks is refused.
        """
        partition = requests[0].req_id.partition
        checked = [r for r in requests if r.write_locks or r.read_locks]
        with self._lock:
            log = self._logs[partition]
            delivery = self._delivery(partition, draws, checked=bool(checked))
            if delivery in (Delivery.LOST, Delivery.UNCERTAIN_ABSENT):
                return delivery, []
            conflicts = {r.req_id: log.conflict(r) for r in requests}
            if delivery is Delivery.CONFLICT:
                conflicts[checked[0].req_id] = log.mark
            refused = {r: c for r, c in conflicts.items() if c != NO_TRANSACTION}
            outcomes: list[BatchOutcome] = [
                Refused(refused[r.req_id]) if r.req_id in refused else Appended(log.append(r))
                for r in requests
            ]
            self.changed()
            return delivery, outcomes

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition()`` is true; it is evaluated after each change."""
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                if condition():
                    return
                waiting = (loop, asyncio.Event())
                self._waiting.append(waiting)
            try:
                await waiting[1].wait()
            finally:
                with self._lock:
                    self._waiting = [each for each in self._waiting if each is not waiting]

    def changed(self) -> None:
        """Wake every wait, so that it evaluates its condition again."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            for loop, event in waiting:
                # A closed event loop has no waits left.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)

    def _delivery(self, partition: int, draws: Draws, *, checked: bool) -> Delivery:
        drawn = draws.delivery(self.faults, checked=checked)
        if checked and self._ordered_conflicts[partition]:
            self._ordered_conflicts[partition] -= 1
            return Delivery.CONFLICT
        if self._ordered[partition]:
            return self._ordered[partition].popleft()
        return drawn

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self.num_partitions:
            raise PartitionUnknown(partition, self.num_partitions)
