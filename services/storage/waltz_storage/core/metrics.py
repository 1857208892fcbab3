"""What a storage shows to Prometheus, and what each metric means. Pure."""

from __future__ import annotations

from waltz.runtime.exposition import (
    Catalogue,
    Family,
    Info,
    Kind,
    Source,
    certificate_left,
    counter,
    gauge,
    histogram,
)
from waltz_storage.core.partitions.partition import COUNTER_NAMES

CATALOGUE = Catalogue(
    group="waltz-storage",
    info=Info("waltz_storage_info", "who it is", {"version": "waltz-version-id"}),
    process=(
        gauge("waltz_storage_healthy", "is-healthy", "1 while `/health` answers 200"),
        gauge("waltz_storage_partitions", "waltz-storage-num-partitions", "how many it serves"),
        gauge(
            "waltz_storage_refused_partitions",
            "refused-partitions",
            "how many it cannot serve; the JSON form says why, with file and offset",
            len,
        ),
        gauge("waltz_storage_disk_free_bytes", "disk-free-bytes", "what its disk has left"),
        gauge("waltz_storage_disk_size_bytes", "disk-size-bytes", "how large its disk is"),
        certificate_left("waltz_storage_tls_certificate_left_seconds"),
        counter(
            "waltz_storage_flushes_total",
            "flushes",
            "how often it flushed; appends ÷ flushes is how well they are batched",
        ),
    ),
    partition=(
        gauge(
            "waltz_storage_partition_max_transaction_id",
            "max-transaction-id",
            "the last transaction that it holds",
        ),
        gauge(
            "waltz_storage_partition_session_id",
            "session-id",
            "the store session that it belongs to",
        ),
        gauge(
            "waltz_storage_partition_low_water_mark",
            "low-water-mark",
            "the log's mark when that session began",
        ),
        gauge(
            "waltz_storage_partition_local_low_water_mark",
            "local-low-water-mark",
            "this replica's mark when that session began",
        ),
        gauge(
            "waltz_storage_partition_flags",
            "flags",
            "its switches, as its control file has them",
        ),
        gauge(
            "waltz_storage_partition_changes",
            "sequence-number",
            "number of changes in the control file",
        ),
        gauge(
            "waltz_storage_partition_queued_requests",
            "process-queue-size",
            "requests that wait",
        ),
        counter(
            "waltz_storage_partition_transactions_total",
            "append",
            "transactions that were appended",
        ),
        histogram(
            "waltz_storage_partition_append_seconds",
            "append-latency",
            "from an append's arrival until it is flushed",
        ),
        Family(
            "waltz_storage_partition_requests_total",
            Kind.COUNTER,
            "recoveries and reads that were asked for",
            tuple(Source(name, (("request", name),)) for name in COUNTER_NAMES),
        ),
    ),
    not_shown={"waltz-storage-partition-ids": "the numbers of its partitions"},
)
