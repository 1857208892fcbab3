"""Generate http.json and storage-metrics.json: answers of the HTTP and admin ports.

The names are those of spec/behaviour.md section 13, the keys those of Waltz 0.13.2. The values are
those of a process with one partition and no requests.
"""

from __future__ import annotations

from typing import Any

Names = dict[str, dict[str, list[str]]]

_KINDS = ("gauges", "counters", "histograms", "meters", "timers")

_FEED_CONTEXTS = ("real-time-feed-context", "catchup-feed-context")
_SERVER: Names = {
    "waltz-server": {
        "gauges": [
            "is-closed",
            "cluster-name",
            "server-id",
            "endpoint",
            "waltz-server-num-partitions",
            "replica-info",
            "waltz-version-id",
        ],
        "meters": ["feed-cache-miss", "transaction-cache-miss"],
    },
    "waltz-server.partition-0": {
        "gauges": [
            "pending-append",
            "is-closed",
            "generation",
            "append-queue-size",
            *(
                f"total-{kind}-{change}"
                for kind in _FEED_CONTEXTS
                for change in ("added", "removed")
            ),
            "high-water-mark",
        ],
        "meters": ["transaction", "successful-append", "rejected-append"],
        "timers": ["response-latency"],
    },
}
_STORAGE: Names = {
    "waltz-storage": {
        "gauges": [
            "waltz-storage-num-partitions",
            "waltz-storage-partition-ids",
            "waltz-version-id",
        ],
    },
    "waltz-storage.partition-0": {
        "gauges": [
            "session-id",
            "process-queue-size",
            "low-water-mark",
            "local-low-water-mark",
            "flags",
            "sequence-number",
            "max-transaction-id",
        ],
        "meters": ["append"],
        "timers": ["append-latency"],
        "counters": [
            f"{request}-request"
            for request in (
                "last-session-info",
                "set-low-water-mark",
                "truncate",
                "record-header",
                "record",
                "max-transaction",
                "record-header-list",
                "record-list",
            )
        ],
    },
}
_VALUES: dict[str, Any] = {
    "waltz-server.cluster-name": "example",
    "waltz-server.endpoint": "s.example:55180",
    "waltz-server.is-closed": False,
    "waltz-server.partition-0.is-closed": False,
    "waltz-server.partition-0.generation": 1,
    "waltz-server.partition-0.high-water-mark": -1,
    "waltz-server.replica-info": {"0": ["a.example:55280", "b.example:55280"]},
    "waltz-server.server-id": 1,
    "waltz-server.waltz-server-num-partitions": 1,
    "waltz-server.waltz-version-id": "unknown",
    "waltz-storage.partition-0.flags": 5,
    "waltz-storage.partition-0.low-water-mark": -1,
    "waltz-storage.partition-0.local-low-water-mark": -1,
    "waltz-storage.partition-0.max-transaction-id": -1,
    "waltz-storage.partition-0.sequence-number": 1,
    "waltz-storage.partition-0.session-id": -1,
    "waltz-storage.waltz-storage-num-partitions": 1,
    "waltz-storage.waltz-storage-partition-ids": [0],
    "waltz-storage.waltz-version-id": "unknown",
}
"""Values of gauges; all others are 0."""

_HTTP_METER = {
    "count": 0,
    "m15_rate": 0.0,
    "m1_rate": 0.0,
    "m5_rate": 0.0,
    "mean_rate": 0.0,
    "units": "events/second",
}
_HTTP_TIMER = {
    "count": 0,
    **dict.fromkeys(
        ("max", "mean", "min", "p50", "p75", "p95", "p98", "p99", "p999", "stddev"), 0.0
    ),
    **dict.fromkeys(("m15_rate", "m1_rate", "m5_rate", "mean_rate"), 0.0),
    "duration_units": "seconds",
    "rate_units": "calls/second",
}
_BEAN_METER = {
    "count": 0,
    "fifteenMinuteRate": 0.0,
    "oneMinuteRate": 0.0,
    "fiveMinuteRate": 0.0,
    "meanRate": 0.0,
}
_BEAN_TIMER = {
    **_BEAN_METER,
    "snapshot": {
        "values": [],
        "min": 0,
        "max": 0,
        **dict.fromkeys(("mean", "stdDev", "median"), 0.0),
        **{f"{part}thPercentile": 0.0 for part in (75, 95, 98, 99, 999)},
    },
}
_HTTP = {"counters": {"count": 0}, "meters": _HTTP_METER, "timers": _HTTP_TIMER}
_BEAN = {"counters": {"count": 0}, "meters": _BEAN_METER, "timers": _BEAN_TIMER}


def _by_kind(names: Names, forms: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {kind: {} for kind in _KINDS}
    for group, kinds in names.items():
        for kind, listed in kinds.items():
            for name in listed:
                full = f"{group}.{name}"
                gauge = {"value": _VALUES.get(full, 0)}
                found[kind][full] = gauge if kind == "gauges" else forms[kind]
    return found


def http() -> dict[str, Any]:
    """Return http.json: status, content type and body of each path."""
    text, as_json = "text/plain;charset=iso-8859-1", "application/json"
    build = {"service_name": "waltz", "version": "0.0.0"}
    server = {
        "server-health-check": {"healthy": True, "zookeeper": True, "partitions": {"0": True}}
    }
    storage = {"storage-health-check": {"healthy": True, "message": '{"storage":"true"}'}}
    answers: dict[str, tuple[str, Any]] = {
        "server /ping": (text, "pong\n"),
        "storage /ping": (text, "pong\n"),
        "server /buildinfo": (as_json, build),
        "storage /buildinfo": (as_json, build),
        "server /health": (as_json, server),
        "storage /health": (as_json, storage),
        "server /metrics": (as_json, {"version": "4.0.0", **_by_kind(_SERVER, _HTTP)}),
        "storage /metrics": (as_json, {"version": "4.0.0", **_by_kind(_STORAGE, _HTTP)}),
    }
    return {
        path: {"status": 200, "contentType": content_type, "body": body}
        for path, (content_type, body) in answers.items()
    }


def storage_metrics() -> dict[str, Any]:
    """Return storage-metrics.json: the answer to the admin port's MetricsRequest."""
    kinds = _by_kind(_STORAGE, _BEAN)
    return {
        "metrics": {name: form for kind in kinds.values() for name, form in kind.items()},
        "ids": [
            {"group": group, "name": name, "fullName": f"{group}.{name}"}
            for group, listed in _STORAGE.items()
            for names in listed.values()
            for name in names
        ],
        **kinds,
    }
