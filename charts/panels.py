"""Define the panels of the Grafana dashboard. Touches nothing.

The user selects ``$namespace`` and ``$waltz_cluster`` at the top of the page. The chart's
ServiceMonitor adds the label ``waltz_cluster``, the name of the WaltzCluster, to all metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

_CLUSTER = 'namespace=~"$namespace", waltz_cluster=~"$waltz_cluster"'


@dataclass(frozen=True, slots=True)
class Line:
    """A query and its name in the legend; ``{{x}}`` in the name is the value of the label ``x``."""

    query: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: lines over time or, if ``shows_now``, the current value as a number with a colour.

    The number is red if it is at least ``alarm``; if ``low_is_bad``, it is red below ``alarm``.
    ``about`` is a description for users of the panel.
    """

    title: str
    lines: tuple[Line, ...]
    unit: str = "short"
    width: int = 8
    shows_now: bool = False
    alarm: float | None = None
    low_is_bad: bool = False
    about: str = ""


def _rate(counter: str, by: str = "") -> str:
    """Return the query for the increase of a counter per second.

    With ``by``, the query has a sum for each value of this label, otherwise one sum of everything.
    """
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({counter}{{{_CLUSTER}}}[$__rate_interval]))"


def _quantile(q: float, histogram: str) -> str:
    """Return the query for the value below which the share ``q`` of the observations lies."""
    return f"histogram_quantile({q}, {_rate(f'{histogram}_bucket', 'le')})"


def _quantiles(histogram: str) -> tuple[Line, ...]:
    """Return lines for the median, the 99th and the 99.9th percentile."""
    return tuple(
        Line(_quantile(q, histogram), name)
        for q, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
    )


# The number of partitions that no server has open, although a storage has a replica of them or a
# server waits for their storages. If all storages of a partition have stopped, only its server
# reports the partition.
_NOT_SERVED = (
    f"count(group by (namespace, waltz_cluster, partition) "
    f"(waltz_storage_partition_session_id{{{_CLUSTER}}} "
    f"or waltz_server_partition_open{{{_CLUSTER}}}) "
    f"unless group by (namespace, waltz_cluster, partition) "
    f"(waltz_server_partition_open{{{_CLUSTER}}} == 1)) or vector(0)"
)

# The rows of the page from top to bottom: the title of each, and its panels.
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Overview",
        (
            Panel(
                "Partitions that take no appends",
                (Line(_NOT_SERVED),),
                width=4,
                shows_now=True,
                alarm=1,
            ),
            Panel(
                "Unhealthy processes",
                (
                    Line(
                        f"count((waltz_server_healthy{{{_CLUSTER}}} == 0) or "
                        f"(waltz_storage_healthy{{{_CLUSTER}}} == 0)) or vector(0)"
                    ),
                ),
                width=4,
                shows_now=True,
                alarm=1,
            ),
            Panel(
                "Storages",
                (Line(f"count(waltz_storage_healthy{{{_CLUSTER}}})"),),
                width=4,
                shows_now=True,
            ),
            Panel(
                "Servers",
                (Line(f"count(waltz_server_healthy{{{_CLUSTER}}})"),),
                width=4,
                shows_now=True,
            ),
            Panel(
                "Least free disk",
                (
                    Line(
                        f"min(waltz_storage_disk_free_bytes{{{_CLUSTER}}} "
                        f"/ waltz_storage_disk_size_bytes{{{_CLUSTER}}})"
                    ),
                ),
                unit="percentunit",
                width=4,
                shows_now=True,
                alarm=0.2,
                low_is_bad=True,
            ),
            Panel(
                "First certificate expires in",
                (
                    Line(
                        f"min(waltz_server_tls_certificate_left_seconds{{{_CLUSTER}}} or "
                        f"waltz_storage_tls_certificate_left_seconds{{{_CLUSTER}}})"
                    ),
                ),
                unit="s",
                width=4,
                shows_now=True,
                alarm=14 * 86_400,
                low_is_bad=True,
            ),
        ),
    ),
    (
        "Appends",
        (
            Panel(
                "Appends per second",
                (
                    Line(_rate("waltz_server_partition_committed_appends_total"), "committed"),
                    Line(
                        _rate("waltz_server_partition_refused_appends_total"), "refused by a lock"
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Duration of appends",
                _quantiles("waltz_server_partition_append_seconds"),
                unit="s",
                about="From an append's arrival at its server to its outcome.",
            ),
            Panel(
                "Appends without outcome",
                (
                    Line(f"sum(waltz_server_partition_open_appends{{{_CLUSTER}}})", "open"),
                    Line(
                        f"sum(waltz_server_partition_queued_appends{{{_CLUSTER}}})", "not yet sent"
                    ),
                ),
                about="Grows if a quorum is missing, or if the disks cannot flush the load.",
            ),
            Panel(
                "Busiest partitions",
                (
                    Line(
                        f"topk(10, {_rate('waltz_server_partition_appends_total', 'partition')})",
                        "{{partition}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Partitions of each server",
                (Line(f"sum by (pod) (waltz_server_partitions{{{_CLUSTER}}})", "{{pod}}"),),
            ),
            Panel(
                "Assignments of partitions to servers",
                (
                    Line(
                        "sum(max by (namespace, waltz_cluster, partition) "
                        f"(waltz_server_partition_generation{{{_CLUSTER}}}))",
                        "generations",
                    ),
                ),
                about="Increases for each server that joins or leaves.",
            ),
        ),
    ),
    (
        "Reading",
        (
            Panel(
                "Feeds to clients",
                tuple(
                    Line(
                        "sum(waltz_server_partition_feeds_added_total"
                        f'{{{_CLUSTER}, distance="{distance}"}} '
                        "- waltz_server_partition_feeds_removed_total"
                        f'{{{_CLUSTER}, distance="{distance}"}})',
                        distance,
                    )
                    for distance in ("near", "far")
                ),
                about="Clients that read a partition: at its end (near: the real-time feed), or "
                "earlier records (far: the catch-up feed).",
            ),
            Panel(
                "Cache misses",
                (
                    Line(_rate("waltz_server_feed_cache_misses_total"), "feeds"),
                    Line(_rate("waltz_server_data_cache_misses_total"), "data"),
                ),
                unit="ops",
            ),
            Panel(
                "Slow readers disconnected per second",
                tuple(
                    Line(_rate(f"waltz_{process}_closed_slow_readers_total", "pod"), "{{pod}}")
                    for process in ("server", "storage")
                ),
                unit="ops",
                about="Connections that a server or storage closed, because slow readers together "
                "left more than maxUnsentBytes unread.",
            ),
        ),
    ),
    (
        "Storages",
        (
            Panel(
                "Flushes per second",
                (Line(_rate("waltz_storage_flushes_total", "pod"), "{{pod}}"),),
                unit="ops",
            ),
            Panel(
                "Transactions per flush",
                (
                    Line(
                        f"{_rate('waltz_storage_partition_transactions_total', 'pod')} "
                        f"/ {_rate('waltz_storage_flushes_total', 'pod')}",
                        "{{pod}}",
                    ),
                ),
            ),
            Panel(
                "Duration of appends on storages",
                _quantiles("waltz_storage_partition_append_seconds"),
                unit="s",
            ),
            Panel(
                "Transactions behind the most advanced replica",
                (
                    Line(
                        "max by (pod) (max by (namespace, waltz_cluster, partition) "
                        f"(waltz_storage_partition_max_transaction_id{{{_CLUSTER}}}) "
                        "- on (namespace, waltz_cluster, partition) group_right () "
                        f"waltz_storage_partition_max_transaction_id{{{_CLUSTER}}})",
                        "{{pod}}",
                    ),
                ),
            ),
            Panel(
                "Queued requests of storages",
                (
                    Line(
                        f"sum by (pod) (waltz_storage_partition_queued_requests{{{_CLUSTER}}})",
                        "{{pod}}",
                    ),
                ),
            ),
            Panel(
                "Free disk",
                (Line(f"waltz_storage_disk_free_bytes{{{_CLUSTER}}}", "{{pod}}"),),
                unit="bytes",
            ),
            Panel(
                "Requests other than appends per second",
                (Line(_rate("waltz_storage_partition_requests_total", "request"), "{{request}}"),),
                unit="ops",
                width=12,
            ),
            Panel(
                "Partitions that storages cannot serve",
                (Line(f"waltz_storage_refused_partitions{{{_CLUSTER}}}", "{{pod}}"),),
                width=12,
            ),
            Panel(
                "Fill of the write-ahead log",
                (Line(f"waltz_storage_wal_used_ratio{{{_CLUSTER}}}", "{{pod}}"),),
                unit="percentunit",
                about="The part of the log that a replay would need. At 100 % appends wait for a "
                "checkpoint. 0 with the engine Files.",
            ),
            Panel(
                "Checkpoint lag of the write-ahead log",
                (Line(f"waltz_storage_wal_checkpoint_lag_seconds{{{_CLUSTER}}}", "{{pod}}"),),
                unit="s",
                about="The age of the oldest transaction in the log that no checkpoint has passed. "
                "It grows if the segment files are flushed too slowly.",
            ),
            Panel(
                "Duration of the last replay of the write-ahead log",
                (Line(f"waltz_storage_wal_replay_seconds{{{_CLUSTER}}}", "{{pod}}"),),
                unit="s",
                about="How long the last start of a storage replayed its log.",
            ),
        ),
    ),
    (
        "Operator",
        (
            Panel(
                "Active operators",
                (Line("sum(waltz_operator_is_leader) or vector(0)"),),
                width=4,
                shows_now=True,
                alarm=1,
                low_is_bad=True,
            ),
            Panel("Clusters", (Line("max(waltz_operator_clusters)"),), width=4, shows_now=True),
            Panel(
                "Clusters that are Ready",
                (
                    Line(
                        f"max by (namespace, waltz_cluster) "
                        f"(waltz_operator_cluster_ready{{{_CLUSTER}}})",
                        "{{namespace}}/{{waltz_cluster}}",
                    ),
                ),
                about="1 while the condition Ready is true, otherwise 0.",
            ),
            Panel(
                "Steps per minute",
                (
                    Line("sum(rate(waltz_operator_steps_total[5m])) * 60", "succeeded"),
                    Line("sum(rate(waltz_operator_failed_steps_total[5m])) * 60", "failed"),
                ),
            ),
            Panel(
                "Duration of a reconcile",
                (
                    Line(
                        "sum(rate(waltz_operator_reconcile_seconds_total[5m])) "
                        "/ sum(rate(waltz_operator_reconciles_total[5m]))",
                        "mean",
                    ),
                ),
                unit="s",
            ),
        ),
    ),
)
