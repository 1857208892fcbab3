"""Metrics as Prometheus reads them: names, labels and numbers of what a registry has."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from waltz.runtime.exposition import (
    Catalogue,
    Family,
    Info,
    Kind,
    Source,
    counter,
    exposition,
    gauge,
    histogram,
    is_asked_for,
)
from waltz.runtime.metrics import BUCKETS_SECONDS, Registry, Timer
from waltz_server.core.metrics import CATALOGUE as SERVER
from waltz_storage.core.metrics import CATALOGUE as STORAGE

_CATALOGUE = Catalogue(
    group="g",
    info=Info("waltz_g_info", "who it is", {"cluster": "name"}),
    process=(
        gauge("waltz_g_open", "is-closed", "whether it is open", lambda closed: not closed),
        gauge("waltz_g_left_seconds", "left", "how long"),
    ),
    partition=(
        counter("waltz_g_appends_total", "appends", "appends"),
        histogram("waltz_g_append_seconds", "latency", "how long appends take"),
        Family(
            "waltz_g_requests_total",
            Kind.COUNTER,
            "requests",
            (Source("reads", (("request", "read"),)), Source("cuts", (("request", "cut"),))),
        ),
    ),
    not_shown={},
)


def registry() -> Registry:
    made, timer = Registry(lambda: 1.0), Timer()
    made.gauge("g", "name", lambda: 'a "quoted" name')
    made.gauge("g", "is-closed", lambda: False)
    made.gauge("g", "left", lambda: None)
    made.gauge("g", "unheard-of", lambda: {"a": 1})
    made.meter("g.partition-7", "appends", lambda: 12)
    made.timer("g.partition-7", "latency", timer)
    made.counter("g.partition-7", "reads", lambda: 3)
    made.counter("g.partition-7", "cuts", lambda: 0)
    for seconds, events in ((0.0001, 5), (BUCKETS_SECONDS[3], 2), (99.0, 1)):
        timer.add(seconds, events)
    return made


@pytest.mark.parametrize(
    ("accept", "parser"),
    [
        ("text/plain", parse),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3", parse_open),
    ],
)
def test_numbers_have_their_names_and_labels(accept: str, parser: object) -> None:
    assert callable(parser)
    text, content_type = exposition(_CATALOGUE, registry().readings(), accept)
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


@pytest.mark.parametrize(
    ("accept", "asked"),
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
def test_only_who_names_the_text_gets_it(accept: str, asked: bool) -> None:
    assert is_asked_for(accept) is asked


@pytest.mark.parametrize("catalogue", [SERVER, STORAGE], ids=["server", "storage"])
def test_names_follow_the_customs_of_prometheus(catalogue: Catalogue) -> None:
    prefix = catalogue.group.replace("-", "_")
    assert catalogue.info.name == f"{prefix}_info"
    families = [*catalogue.process, *catalogue.partition]
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith(f"{prefix}_")
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        if family.kind is Kind.HISTOGRAM:
            assert family.name.endswith("_seconds")
    for family in catalogue.partition:
        assert family.name.startswith(f"{prefix}_partition_")
