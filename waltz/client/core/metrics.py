"""The metrics of a client, and their names (spec/behaviour.md section 13). Pure.

The group ``waltz-client`` has the metrics of the client. A group
``waltz-client-stream.partition-<n>`` has those of a partition, and is created when the client uses
the partition for the first time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from waltz.client.core.errors import AppendUncertain, ClusterUnreachable, LockFailed
from waltz.runtime.core.json_metrics import Clock, JsonKind, JsonMetrics
from waltz.runtime.core.timer import Timer

CLIENT_GROUP = "waltz-client"


def partition_group(partition: int) -> str:
    """Return the name of the group of one partition."""
    return f"waltz-client-stream.partition-{partition}"


@dataclass(slots=True)
class PartitionMetrics:
    """Counts of one partition, which only grow.

    ``sent`` counts the calls of `LogClient.append`, and the attempts of `LogClient.submit`. It does
    not count batches. ``received`` counts the transactions that streams returned. ``late`` counts
    the appends that timed out or stayed in doubt. ``lock_failures`` counts those that raised
    LockFailed. ``appends`` has the durations of the successful appends in seconds.
    """

    sent: int = 0
    received: int = 0
    late: int = 0
    lock_failures: int = 0
    appends: Timer = field(default_factory=Timer)


class AppendState(Protocol):
    """The state of a client's appends, from which the gauges are read."""

    def is_mounted(self, partition: int) -> bool:
        """Return whether the partition is mounted, so that appends can be sent."""

    def mark(self, partition: int) -> int:
        """Return the largest id that the client knows to be in the log of the partition.

        It is -1 before the partition is used.
        """

    def in_flight(self, partition: int) -> int:
        """Return the number of appends that were sent or wait to be sent, without an outcome."""


class ClientMetrics:
    """The metrics of one client, in the JSON forms of Waltz 0.13.2.

    A client has no HTTP port, and `import waltz` does not load prometheus_client. An application
    with metrics of its own can copy these values.
    """

    def __init__(self, cluster_name: str, client_id: int, state: AppendState, clock: Clock) -> None:
        self.json = JsonMetrics(clock)
        self._state = state
        self._partitions: dict[int, PartitionMetrics] = {}
        """The counts of each partition for which `of` was called."""
        gauges: Iterable[tuple[str, Callable[[], object]]] = (
            ("cluster-name", lambda: cluster_name),
            ("client-id", lambda: client_id),
            ("num-active-partitions", lambda: len(self._partitions)),
            ("active-partition-ids", lambda: sorted(self._partitions)),
        )
        for name, read in gauges:
            self.json.add(CLIENT_GROUP, name, JsonKind.GAUGE, read)

    def of(self, partition: int) -> PartitionMetrics:
        """Return the counts of a partition.

        The first call for a partition adds its group to ``json``.
        """
        metrics = self._partitions.get(partition)
        if metrics is None:
            metrics = self._partitions[partition] = PartitionMetrics()
            self._add_group(partition, metrics)
        return metrics

    def _add_group(self, partition: int, metrics: PartitionMetrics) -> None:
        """Add the group of a partition. Its values come from ``metrics`` and from `AppendState`."""
        group, json, state = partition_group(partition), self.json, self._state
        gauges: Iterable[tuple[str, Callable[[], object]]] = (
            ("is-mounted", lambda: state.is_mounted(partition)),
            ("high-water-mark", lambda: state.mark(partition)),
            ("num-registered-transactions", lambda: state.in_flight(partition)),
        )
        meters: Iterable[tuple[str, Callable[[], int]]] = (
            ("lock-failure", lambda: metrics.lock_failures),
            ("transaction-monitor-timeout", lambda: metrics.late),
            ("send-throughput", lambda: metrics.sent),
            ("received-throughput", lambda: metrics.received),
        )
        for name, read in gauges:
            json.add(group, name, JsonKind.GAUGE, read)
        for name, count in meters:
            json.add(group, name, JsonKind.METER, count)
        json.add(group, "append-latency", JsonKind.TIMER, lambda: metrics.appends)


async def measure_append(metrics: PartitionMetrics, append: Awaitable[int], clock: Clock) -> int:
    """Await ``append``, count its outcome in ``metrics``, and return its result.

    Raises the errors of ``append``.
    """
    metrics.sent += 1
    started_at = clock()
    try:
        transaction_id = await append
    except LockFailed:
        metrics.lock_failures += 1
        raise
    except (AppendUncertain, ClusterUnreachable):
        metrics.late += 1
        raise
    metrics.appends.add(clock() - started_at)
    return transaction_id
