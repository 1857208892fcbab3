"""Metrics as Prometheus reads them: names, labels and values of the declared metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from waltz.runtime.core.json_metrics import JsonKind
from waltz.runtime.core.timer import BUCKETS_SECONDS, Timer
from waltz.runtime.metrics import (
    Kind,
    MetricDeclarations,
    MetricFamily,
    MetricSource,
    ProcessMetrics,
    accepts_exposition,
    counter,
    exposition,
    gauge,
    gauge_source,
    histogram,
)
from waltz_server.shell.metrics import METRICS as SERVER
from waltz_server.shell.node import ServerNode
from waltz_storage.shell.metrics import METRICS as STORAGE


@dataclass
class Process:
    """The source of the metrics of a process."""

    name: str = 'a "quoted" name'
    closed: bool = False
    left: float | None = None


@dataclass
class Partition:
    """The source of the metrics of a partition."""

    appends: int = 12
    reads: int = 3
    cuts: int = 0
    latency: Timer = field(default_factory=Timer)


_PROCESS: tuple[MetricFamily[Process], ...] = (
    gauge("waltz_g_open", "whether it is open", "is-closed", lambda p: p.closed, lambda c: not c),
    gauge("waltz_g_left_seconds", "how long", "left", lambda p: p.left),
)
_PARTITION: tuple[MetricFamily[Partition], ...] = (
    counter("waltz_g_appends_total", "appends", "appends", lambda p: p.appends),
    histogram("waltz_g_append_seconds", "how long appends take", "latency", lambda p: p.latency),
    MetricFamily(
        "waltz_g_requests_total",
        Kind.COUNTER,
        "requests",
        (
            MetricSource("reads", JsonKind.COUNTER, lambda p: p.reads, "read"),
            MetricSource("cuts", JsonKind.COUNTER, lambda p: p.cuts, "cut"),
        ),
        "request",
    ),
)
_DECLARED: MetricDeclarations[Process, Partition] = MetricDeclarations(
    "g",
    "waltz_g_info",
    {"cluster": gauge_source("name", lambda p: p.name)},
    _PROCESS,
    _PARTITION,
    {gauge_source("unheard-of", lambda p: {"a": 1}): "only in JSON"},
)


def process_metrics() -> ProcessMetrics[Process, Partition]:
    metrics, partition = ProcessMetrics(_DECLARED, Process(), lambda: 1.0), Partition()
    for seconds, events in ((0.0001, 5), (BUCKETS_SECONDS[3], 2), (99.0, 1)):
        partition.latency.add(seconds, events)
    metrics.add_partition(7, partition)
    return metrics


@pytest.mark.parametrize(
    ("accept", "parser"),
    [
        ("text/plain", parse),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3", parse_open),
    ],
)
def test_exposition_has_declared_names_labels_and_values(accept: str, parser: object) -> None:
    assert callable(parser)
    text, content_type = exposition(process_metrics().collect(), accept)
    assert content_type.startswith(accept.partition(";")[0])
    families = {each.name: each for each in parser(text.decode())}
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for each in families.values()
        for sample in each.samples
    }
    seven = ("partition", "7")
    assert samples["waltz_g_info", (("cluster", 'a "quoted" name'),)] == 1
    assert samples["waltz_g_open", ()] == 1
    assert samples["waltz_g_appends_total", (seven,)] == 12
    assert samples["waltz_g_requests_total", (seven, ("request", "read"))] == 3
    assert samples["waltz_g_requests_total", (seven, ("request", "cut"))] == 0
    assert samples["waltz_g_append_seconds_count", (seven,)] == 8
    assert samples["waltz_g_append_seconds_sum", (seven,)] == pytest.approx(99.0055)
    upto = {
        dict(labels)["le"]: value
        for (name, labels), value in samples.items()
        if name == "waltz_g_append_seconds_bucket"
    }
    assert list(upto.values()) == [5, 5, 5, *([7] * (len(BUCKETS_SECONDS) - 3)), 8]
    assert families["waltz_g_append_seconds"].type == "histogram"
    assert families["waltz_g_open"].documentation == "whether it is open"
    assert not [name for name, _ in samples if "left" in name or "unheard" in name]


def test_json_has_the_same_values_under_its_own_names() -> None:
    form = process_metrics().json.http_form()
    assert form["gauges"]["g.name"] == {"value": 'a "quoted" name'}
    assert form["gauges"]["g.is-closed"] == {"value": False}
    assert form["gauges"]["g.left"] == {"value": None}
    assert form["gauges"]["g.unheard-of"] == {"value": {"a": 1}}
    assert form["meters"]["g.partition-7.appends"]["count"] == 12
    assert form["counters"]["g.partition-7.reads"] == {"count": 3}
    assert form["timers"]["g.partition-7.latency"]["count"] == 8


def test_removed_partition_is_in_neither_form() -> None:
    metrics = process_metrics()
    metrics.remove_partition(7)
    metrics.remove_partition(8)
    assert not [name for name in metrics.json.http_form()["meters"] if "partition" in name]
    assert b"partition=" not in exposition(metrics.collect(), "text/plain")[0]


def test_metrics_have_only_the_partitions_of_this_moment() -> None:
    current: dict[int, Partition] = {1: Partition()}
    metrics = ProcessMetrics(_DECLARED, Process(), lambda: 1.0, lambda: current)

    def appends() -> dict[str, Any]:
        meters = metrics.json.http_form()["meters"]
        return {name: meters[name]["count"] for name in meters}

    assert appends() == {"g.partition-1.appends": 12}
    current[1], current[2] = Partition(appends=1), Partition(appends=2)
    assert appends() == {"g.partition-1.appends": 1, "g.partition-2.appends": 2}
    del current[1]
    assert appends() == {"g.partition-2.appends": 2}
    assert b'partition="1"' not in exposition(metrics.collect(), "text/plain")[0]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/plain, */*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("text/plain", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1", True),
    ],
)
def test_only_request_that_names_the_text_form_gets_it(accept: str, expected: bool) -> None:
    assert accepts_exposition(accept) is expected


@pytest.mark.parametrize("declared", [SERVER, STORAGE], ids=["server", "storage"])
def test_declared_names_follow_the_conventions_of_prometheus(
    declared: MetricDeclarations[Any, Any],
) -> None:
    prefix = declared.group.replace("-", "_")
    assert declared.info == f"{prefix}_info"
    families = [*declared.process, *declared.partition]
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith(f"{prefix}_")
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        if family.kind is Kind.HISTOGRAM:
            assert family.name.endswith("_seconds")
    for family in declared.partition:
        assert family.name.startswith(f"{prefix}_partition_")


@pytest.mark.parametrize(
    ("host", "expected"), [("fd00::1", "[fd00::1]:55180"), ("server", "server:55180")]
)
def test_endpoint_of_server_with_ipv6_address_has_brackets(host: str, expected: str) -> None:
    node = cast(ServerNode, SimpleNamespace(endpoint=(host, 55180)))
    assert SERVER.info_labels["endpoint"].read(node) == expected
