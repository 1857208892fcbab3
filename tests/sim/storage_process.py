"""The processes of a simulated storage: the real node, with small sizes and short times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from typing_extensions import override

from tests.sim.delayed_engine import DelayedEngine, Machine
from tests.sim.history import History
from waltz.net import Backoff
from waltz.protocol import STORAGE
from waltz.testing.engine import EventLoopEngine
from waltz.testing.nodes import InProcessStorage, SharedEnvironment
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.shell.config import EngineKind, StorageConfig
from waltz_storage.shell.environment import StorageEnvironment
from waltz_storage.shell.node import StorageNode
from waltz_storage.shell.self_repair import RepairTimes

_ALLOCATED_BYTES = 2048
_DIRECT_BYTES = 700
"""The size of the appends that the engine wal writes directly: some appends of a run are larger,
and most are smaller and copied to the log."""

_SCRUB_BYTES_PER_SECOND = 10_000_000
_PASS_SECONDS = 0.3
_REPAIR_TIMES = RepairTimes(0.02, Backoff(0.1, 1.0))
"""How often the scrubber reads the logs, and when repairs are tried: as long as a run lasts, not
hours."""


@dataclass(frozen=True, slots=True)
class SimEngine:
    """The storage engine of a run, and the size of its write-ahead log."""

    kind: EngineKind
    wal_bytes: int

    @classmethod
    def of_seed(cls, seed: int) -> SimEngine:
        """Return the engine of a seed: the engine wal for every second one.

        The log is small, so that it is full several times in a run: there is no thread, and a
        checkpoint is made only when the log is full, and at a clean stop.
        """
        kind = EngineKind.WAL if seed % 2 else EngineKind.FILES
        return cls(kind, (12 + 4 * (seed // 2 % 8)) * BLOCK_BYTES)


class ProcessOwner(Machine, Protocol):
    """The machine on which the processes run; it says how the next one is started."""

    history: History
    segment_bytes: int
    engine: SimEngine
    version: int
    scrubs: bool

    def assign_missing(self, directory: StorageDirectory) -> None:
        """Assign the partitions that a new disk does not have."""


class StorageProcess(InProcessStorage):
    """The processes of a storage, one after the other."""

    def __init__(self, number: int, shared: SharedEnvironment, storage: ProcessOwner) -> None:
        super().__init__(number, shared)
        self.engine: DelayedEngine | None = None
        self._storage = storage

    @override
    def new_node(self, config: StorageConfig, environment: StorageEnvironment) -> StorageNode:
        storage = self._storage
        return StorageNode(
            config.model_copy(
                update={
                    "segment_threshold": storage.segment_bytes,
                    "engine": storage.engine.kind.value,
                    "wal_bytes": storage.engine.wal_bytes,
                    "scrub_bytes_per_second": _SCRUB_BYTES_PER_SECOND if storage.scrubs else 0,
                }
            ),
            STORAGE.limited_to(*range(storage.version + 1)),
            environment=replace(
                environment,
                now_ms=lambda: 0,
                allocate_bytes=_ALLOCATED_BYTES,
                direct_bytes=_DIRECT_BYTES,
                pass_seconds=_PASS_SECONDS,
                repair_times=_REPAIR_TIMES,
            ),
        )

    @override
    def _new_engine(
        self,
        directory: StorageDirectory,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> EventLoopEngine:
        self._storage.assign_missing(directory)
        self.engine = DelayedEngine(directory, fail, clock, self._storage, self._storage.history)
        return self.engine
