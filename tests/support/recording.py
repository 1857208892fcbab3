"""Define an application and contexts for tests that record their calls in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import waltz
from waltz.sync.callbacks import Application, TransactionBuilder, TransactionContext


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return as soon as ``condition()`` is true, on a thread; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds:g} s"
        time.sleep(0.002)


@dataclass
class Record:
    """The recorded calls of an application and its contexts.

    An event begins with the name of its context, which is also the data of its transaction.
    """

    events: list[tuple[object, ...]] = field(default_factory=list)

    def of(self, name: str) -> list[tuple[object, ...]]:
        """Return the events of the context ``name``, without the name."""
        return [event[1:] for event in self.events if event[0] == name]

    def add(self, *event: object) -> None:
        self.events.append(event)


class Recording(Application[bytes]):
    """Records each applied transaction; ``before`` is called first and may raise."""

    def __init__(
        self,
        record: Record | None = None,
        marks: dict[int, int] | None = None,
        before: Callable[[waltz.Transaction[bytes]], None] = lambda _: None,
    ) -> None:
        self.record = record or Record()
        self.marks = marks or {}
        self.before = before
        self.applied: list[waltz.Transaction[bytes]] = []
        self.errors: list[tuple[int, int, Exception]] = []

    def get_client_high_water_mark(self, partition: int) -> int:
        return self.marks.get(partition, -1)

    def apply_transaction(self, transaction: waltz.Transaction[bytes]) -> None:
        self.before(transaction)
        self.applied.append(transaction)
        self.record.add(transaction.data.decode(), "applied", transaction.id)

    def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
        self.errors.append((partition, transaction_id, error))


@dataclass
class Say(TransactionContext[bytes]):
    """Appends its name, under a lock if one is given; ``during`` is called in execute.

    If it is not ``willing``, execute refuses to append. ``executed`` counts the calls of execute.
    ``ended`` is set when no further call follows.
    """

    record: Record
    name: str
    partition: int = 0
    lock: str | None = None
    during: Callable[[], object] = lambda: None
    willing: bool = True
    executed: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def partition_id(self, num_partitions: int) -> int:
        return self.partition

    def execute(self, builder: TransactionBuilder[bytes]) -> bool:
        self.executed += 1
        self.during()
        if self.willing:
            builder.data = self.name.encode()
            builder.write_locks = [waltz.Lock(self.lock, 1)] if self.lock else []
        return self.willing

    def on_completion(self, result: bool) -> None:
        self.record.add(self.name, "completion", result)
        if not result:
            self.ended.set()

    def on_application(self) -> None:
        self.record.add(self.name, "application")
        self.ended.set()

    def on_lock_failure(self) -> None:
        self.record.add(self.name, "lock failure")

    def on_exception(self, error: Exception) -> None:
        self.record.add(self.name, "exception", type(error).__name__)
        self.ended.set()
