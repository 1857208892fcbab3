"""Metrics and health of a storage node (spec/behaviour.md sections 12 and 13). Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from waltz.runtime.metrics import Reading, Registry
from waltz.runtime.version import build_version
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.partitions.partition import COUNTER_NAMES, StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory

_GROUP = "waltz-storage"


class StorageRegistry(Registry):
    """A registry that shows the partitions which are open when it is asked."""

    def __init__(
        self,
        directory: StorageDirectory,
        queued: Callable[[int], int],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(clock)
        self._directory = directory
        self._queued = queued
        self._shown: dict[int, StoragePartition] = {}
        self.gauge(_GROUP, "waltz-storage-num-partitions", lambda: len(directory.partitions))
        self.gauge(_GROUP, "waltz-storage-partition-ids", lambda: sorted(directory.partitions))
        self.gauge(_GROUP, "waltz-version-id", build_version)
        self.gauge(_GROUP, "refused-partitions", lambda: _refusals(directory))
        self.gauge(_GROUP, "is-healthy", lambda: health(directory)[0])

    def readings(self) -> Iterator[Reading]:
        """Yield every metric as it is now."""
        self._follow()
        yield from super().readings()

    def http_form(self) -> dict[str, Any]:
        """Return what ``GET /metrics`` answers."""
        self._follow()
        return super().http_form()

    def bean_form(self) -> dict[str, Any]:
        """Return what the admin port's metrics request answers."""
        self._follow()
        return super().bean_form()

    def _follow(self) -> None:
        opened = dict(self._directory.partitions)
        for number, partition in list(self._shown.items()):
            if opened.get(number) is not partition:
                self.remove(_group(number))
                del self._shown[number]
        for number, partition in opened.items():
            if number not in self._shown:
                self._register(partition)
                self._shown[number] = partition

    def _register(self, opened: StoragePartition) -> None:
        group = _group(opened.partition)
        gauge = self.gauge
        gauge(group, "session-id", lambda: opened.info.session_id)
        gauge(group, "low-water-mark", lambda: opened.info.low_water_mark)
        gauge(group, "local-low-water-mark", lambda: opened.info.local_low_water_mark)
        gauge(group, "flags", lambda: opened.info.flags)
        gauge(group, "sequence-number", partial(self._directory.sequence, opened.partition))
        gauge(group, "max-transaction-id", lambda: opened.log.max_id)
        gauge(group, "process-queue-size", partial(self._queued, opened.partition))
        self.meter(group, "append", lambda: opened.appends)
        self.timer(group, "append-latency", opened.append_latency)
        for name in COUNTER_NAMES:
            self.counter(group, name, partial(opened.requests.__getitem__, name))


def health(directory: StorageDirectory) -> tuple[bool, dict[str, Any]]:
    """Return whether every assigned partition is served, and a report in the form of 0.13.2."""
    refused = _refusals(directory)
    check: dict[str, Any] = {"healthy": not refused, "message": '{"storage":"true"}'}
    if refused:
        check |= {"message": "partitions are refused", "refused": refused}
    return not refused, {"storage-health-check": check}


def _refusals(directory: StorageDirectory) -> dict[str, dict[str, Any]]:
    report: dict[str, dict[str, Any]] = {}
    for partition, refused in dict(directory.refused).items():
        report[str(partition)] = {"reason": str(refused)}
        if isinstance(refused, PartitionDamaged):
            report[str(partition)] |= {"file": refused.file, "offset": refused.offset}
    return report


def _group(partition: int) -> str:
    return f"{_GROUP}.partition-{partition}"
