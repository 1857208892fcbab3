"""The metrics of a storage and its health (spec/behaviour.md sections 12 and 13).

Reads the state of the storage and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from waltz.net import AcceptedConnections
from waltz.runtime.core.json_metrics import Clock, JsonKind
from waltz.runtime.metrics import (
    Kind,
    MetricDeclarations,
    MetricFamily,
    MetricSource,
    ProcessMetrics,
    certificate_left,
    counter,
    gauge,
    gauge_source,
    histogram,
)
from waltz.runtime.version import build_version
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.partitions.open_sessions import OpenSessions
from waltz_storage.core.partitions.partition import COUNTER_NAMES, StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.differences import Differences
from waltz_storage.core.scrub.scrubber import Scrubber

_REPORTED_RANGES = 100
"""How many damaged ranges of a partition a health report lists."""


@dataclass(frozen=True, slots=True)
class StorageSources:
    """The parts of a storage that its metrics are read from.

    ``queued`` returns how many jobs of a partition wait, ``flushes`` how many flushes the rounds of
    appends have begun. ``disk_free`` and ``disk_size`` return bytes. ``certificate_days_left``
    returns None without TLS. ``accepted`` are the connections on the port for servers. The
    ``scrubber`` knows the damaged records, ``differences`` the replicas that differ.
    """

    directory: StorageDirectory
    queued: Callable[[int], int]
    flushes: Callable[[], int]
    disk_free: Callable[[], int]
    disk_size: Callable[[], int]
    certificate_days_left: Callable[[], float | None]
    accepted: AcceptedConnections
    scrubber: Scrubber
    differences: Differences


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """An open partition: ``core`` is the partition itself, ``storage`` the storage that has it."""

    core: StoragePartition
    storage: StorageSources


def storage_metrics(
    storage: StorageSources, clock: Clock
) -> ProcessMetrics[StorageSources, OpenPartition]:
    """Return the metrics of a storage and of the partitions that are open when they are read."""

    def partitions() -> dict[int, OpenPartition]:
        # Copied in one step, because other threads open and close partitions.
        open_partitions = dict(storage.directory.partitions)
        return {number: OpenPartition(core, storage) for number, core in open_partitions.items()}

    return ProcessMetrics(METRICS, storage, clock, partitions)


def health(directory: StorageDirectory, scrubber: Scrubber) -> tuple[bool, dict[str, Any]]:
    """Return whether all assigned partitions are served, and a report as in Waltz 0.13.2.

    Damaged records are reported, but do not make the storage unhealthy: it serves the other ones.
    """
    refused = _refusals(directory)
    # This message is the one of Waltz 0.13.2.
    check: dict[str, Any] = {"healthy": not refused, "message": '{"storage":"true"}'}
    if refused:
        check |= {"message": "partitions are refused", "refused": refused}
    damaged = _damaged_ranges(scrubber)
    if damaged:
        check["damaged-records"] = damaged
    return not refused, {"storage-health-check": check}


def readiness(
    directory: StorageDirectory, scrubber: Scrubber, sessions: OpenSessions
) -> tuple[bool, dict[str, Any]]:
    """Return whether the storage is ready, and a report.

    It is ready if it is healthy, and if all its replicas take part in store sessions (see
    `OpenSessions.unattended`).
    """
    healthy, report = health(directory, scrubber)
    # Copied in one step, because other threads open and close partitions.
    infos = {number: core.info for number, core in dict(directory.partitions).items()}
    waiting = sessions.unattended(infos)
    if waiting:
        report["partitions-without-server"] = waiting
    return healthy and not waiting, report


def _refusals(directory: StorageDirectory) -> dict[str, dict[str, Any]]:
    """Return the reason why each refused partition is refused, and the place of its damage."""
    report: dict[str, dict[str, Any]] = {}
    for partition, refused in dict(directory.refused).items():
        report[str(partition)] = {"reason": str(refused)}
        if isinstance(refused, PartitionDamaged):
            report[str(partition)] |= {"file": refused.file, "offset": refused.offset}
    return report


def _damaged_ranges(scrubber: Scrubber) -> dict[str, list[str]]:
    """Return the damaged ranges of each partition, at most the first `_REPORTED_RANGES`."""
    return {
        str(partition): [str(ids) for ids in ranges[:_REPORTED_RANGES]]
        for partition, ranges in sorted(scrubber.findings.ranges.items())
    }


def _differences(differences: Differences) -> dict[str, str]:
    """Return the known difference of each partition that has one, as a text."""
    return {
        str(partition): difference.text(partition)
        for partition, difference in sorted(differences.known.items())
    }


def _requests(name: str, partition: OpenPartition) -> int:
    """Return the value of the counter ``name`` of a partition (see `COUNTER_NAMES`)."""
    return partition.core.requests[name]


# The arguments of each metric: its name for Prometheus, its meaning, its name in JSON, and the
# function that reads its value. A counter is a meter in JSON, with its rates, unless `JsonKind`
# says otherwise.
_PROCESS: tuple[MetricFamily[StorageSources], ...] = (
    gauge(
        "waltz_storage_healthy",
        "1 while `/health` answers 200",
        "is-healthy",
        lambda storage: health(storage.directory, storage.scrubber)[0],
    ),
    gauge(
        "waltz_storage_partitions",
        "number of partitions that this storage serves",
        "waltz-storage-num-partitions",
        lambda storage: len(storage.directory.partitions),
    ),
    gauge(
        "waltz_storage_connections",
        "connections open on the port for servers",
        "connections",
        lambda storage: storage.accepted.open,
    ),
    counter(
        "waltz_storage_refused_connections_total",
        "connections closed at once, because `storage.maxConnections` were open",
        "refused-connections",
        lambda storage: storage.accepted.refused,
    ),
    counter(
        "waltz_storage_closed_slow_readers_total",
        "connections closed because slow readers left more than `storage.maxUnsentBytes` unread",
        "closed-slow-readers",
        lambda storage: storage.accepted.slow_readers.closed,
    ),
    gauge(
        "waltz_storage_refused_partitions",
        "number of assigned partitions that this storage cannot serve; JSON has the reasons, with "
        "file and offset",
        "refused-partitions",
        lambda storage: _refusals(storage.directory),
        to_prometheus=len,
    ),
    gauge(
        "waltz_storage_damaged_records",
        "number of records that were found damaged and that are not repaired; `/health` names them",
        "damaged-records",
        lambda storage: storage.scrubber.findings.count,
    ),
    counter(
        "waltz_storage_repaired_records_total",
        "damaged records that were replaced by those of another replica",
        "repaired-records",
        lambda storage: storage.scrubber.findings.repaired,
        JsonKind.GAUGE,
    ),
    counter(
        "waltz_storage_scrubbed_bytes_total",
        "bytes of records that the scrubber has checked",
        "scrubbed-bytes",
        lambda storage: storage.scrubber.progress.checked_bytes,
        JsonKind.GAUGE,
    ),
    counter(
        "waltz_storage_scrub_passes_total",
        "passes in which the scrubber has checked all logs; one begins at the earliest an hour "
        "after the one before",
        "scrub-passes",
        lambda storage: storage.scrubber.progress.passes,
        JsonKind.GAUGE,
    ),
    gauge(
        "waltz_storage_scrub_progress_ratio",
        "part of the scrubber's present pass that is done; 1 between two passes",
        "scrub-progress",
        lambda storage: storage.scrubber.progress.share,
    ),
    gauge(
        "waltz_storage_differing_partitions",
        "number of partitions whose replicas were compared and are not the same; JSON has the "
        "transaction and the storages",
        "differing-partitions",
        lambda storage: _differences(storage.differences),
        to_prometheus=len,
    ),
    counter(
        "waltz_storage_comparisons_total",
        "comparisons of a partition of this storage with its other replicas",
        "comparisons",
        lambda storage: storage.differences.comparisons,
        JsonKind.GAUGE,
    ),
    counter(
        "waltz_storage_compared_bytes_total",
        "bytes that all storages have read for the comparisons of this one",
        "compared-bytes",
        lambda storage: storage.differences.compared_bytes,
        JsonKind.GAUGE,
    ),
    gauge(
        "waltz_storage_disk_free_bytes",
        "free bytes of the disk",
        "disk-free-bytes",
        lambda storage: storage.disk_free(),
    ),
    gauge(
        "waltz_storage_disk_size_bytes",
        "size of the disk in bytes, without reserved space",
        "disk-size-bytes",
        lambda storage: storage.disk_size(),
    ),
    certificate_left(
        "waltz_storage_tls_certificate_left_seconds",
        lambda storage: storage.certificate_days_left(),
    ),
    counter(
        "waltz_storage_flushes_total",
        "flushes of appended records and their index entries to disk; transactions ÷ flushes is "
        "the mean size of a flush",
        "flushes",
        lambda storage: storage.flushes(),
        JsonKind.GAUGE,
    ),
    gauge(
        "waltz_storage_wal_used_ratio",
        "part of the write-ahead log that a replay would need, from 0 to 1; at 1 appends wait for "
        "a checkpoint; 0 with the engine `files`",
        "wal-used",
        lambda storage: storage.directory.wal_figures.fill,
    ),
    gauge(
        "waltz_storage_wal_checkpoint_lag_seconds",
        "age of the oldest transaction in the write-ahead log that no checkpoint has passed; 0 if "
        "there is none, and with the engine `files`",
        "wal-checkpoint-lag",
        lambda storage: storage.directory.wal_figures.checkpoint_lag,
    ),
    gauge(
        "waltz_storage_wal_replay_seconds",
        "duration of the replay of the write-ahead log when this process started; 0 with the "
        "engine `files`",
        "wal-replay",
        lambda storage: storage.directory.wal_figures.replay_seconds,
    ),
)

_PARTITION: tuple[MetricFamily[OpenPartition], ...] = (
    gauge(
        "waltz_storage_partition_max_transaction_id",
        "id of the last stored transaction",
        "max-transaction-id",
        lambda partition: partition.core.log.max_id,
    ),
    gauge(
        "waltz_storage_partition_session_id",
        "id of the last store session of this replica",
        "session-id",
        lambda partition: partition.core.info.session_id,
    ),
    gauge(
        "waltz_storage_partition_low_water_mark",
        "low-water mark of this replica's last store session: the high-water mark when it began",
        "low-water-mark",
        lambda partition: partition.core.info.low_water_mark,
    ),
    gauge(
        "waltz_storage_partition_local_low_water_mark",
        "last transaction of this replica when its last store session began",
        "local-low-water-mark",
        lambda partition: partition.core.info.local_low_water_mark,
    ),
    gauge(
        "waltz_storage_partition_flags",
        "flags of the partition in the control file, as a sum: 1 both switches on, 4 assigned, 8 "
        "only the read switch on, 16 only the write switch on",
        "flags",
        lambda partition: partition.core.info.flags,
    ),
    gauge(
        "waltz_storage_partition_changes",
        "number of changes of the partition's entry in the control file",
        "sequence-number",
        lambda partition: partition.storage.directory.sequence(partition.core.partition),
    ),
    gauge(
        "waltz_storage_partition_queued_requests",
        "requests that wait for earlier requests of the partition",
        "process-queue-size",
        lambda partition: partition.storage.queued(partition.core.partition),
    ),
    counter(
        "waltz_storage_partition_transactions_total",
        "transactions appended",
        "append",
        lambda partition: partition.core.appended_records,
    ),
    histogram(
        "waltz_storage_partition_append_seconds",
        "time from an append's arrival until it is flushed",
        "append-latency",
        lambda partition: partition.core.append_latency,
    ),
    MetricFamily(
        "waltz_storage_partition_requests_total",
        Kind.COUNTER,
        "recovery and read requests received",
        tuple(
            MetricSource(name, JsonKind.COUNTER, partial(_requests, name), name)
            for name in COUNTER_NAMES
        ),
        "request",
    ),
)

METRICS: MetricDeclarations[StorageSources, OpenPartition] = MetricDeclarations(
    group="waltz-storage",
    info="waltz_storage_info",
    info_labels={"version": gauge_source("waltz-version-id", lambda _: build_version())},
    process=_PROCESS,
    partition=_PARTITION,
    json_only={
        gauge_source(
            "waltz-storage-partition-ids", lambda storage: sorted(storage.directory.partitions)
        ): "the ids of the partitions that this storage serves"
    },
)
