"""The metrics of running processes: all declared, in JSON and in the text form of Prometheus."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

import waltz
from waltz.local import LocalCluster
from waltz.runtime.metrics import MetricDeclarations
from waltz_server.shell.metrics import METRICS as SERVER
from waltz_storage.shell.metrics import METRICS as STORAGE

_PROMETHEUS = "application/openmetrics-text;version=0.0.1;q=0.1,text/plain;version=0.0.4;q=0.5"


def fetch(port: int, accept: str) -> tuple[str, str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept} if accept else {}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(port: int) -> dict[str, dict[str, float]]:
    """Return values by name and, where there is one, partition."""
    content_type, text = fetch(port, "text/plain")
    assert content_type.startswith("text/plain; version=0.0.4")
    result: dict[str, dict[str, float]] = {}
    for family in parse(text):
        for sample in family.samples:
            result.setdefault(sample.name, {})[sample.labels.get("partition", "")] = sample.value
    return result


def http_port(cluster: LocalCluster, declared: MetricDeclarations[Any, Any]) -> int:
    plan = cluster.plan
    process = plan.servers[0] if declared is SERVER else plan.storages[0]
    return process.http


both = pytest.mark.parametrize("declared", [SERVER, STORAGE], ids=["server", "storage"])


@both
def test_metrics_without_a_named_form_are_json(
    cluster: LocalCluster, declared: MetricDeclarations[Any, Any]
) -> None:
    content_type, text = fetch(http_port(cluster, declared), "")
    assert content_type.startswith("application/json")
    assert json.loads(text)["version"] == "4.0.0"
    assert fetch(http_port(cluster, declared), _PROMETHEUS)[0].startswith(
        ("text/plain", "application/openmetrics-text")
    )


@both
def test_json_has_exactly_the_declared_metrics(
    cluster: LocalCluster, declared: MetricDeclarations[Any, Any]
) -> None:
    kinds: dict[str, Any] = json.loads(fetch(http_port(cluster, declared), "")[1])
    full = [name for kind in kinds.values() if isinstance(kind, dict) for name in kind]
    measured = {
        (group == declared.group, name)
        for group, _, name in (each.rpartition(".") for each in full)
    }
    listed = {(True, s.name) for s in (*declared.info_labels.values(), *declared.json_only)}
    for of_process, families in ((True, declared.process), (False, declared.partition)):
        listed |= {(of_process, s.name) for family in families for s in family.sources}
    assert measured == listed


@both
def test_text_form_has_every_declared_metric(
    cluster: LocalCluster, declared: MetricDeclarations[Any, Any]
) -> None:
    text = fetch(http_port(cluster, declared), "text/plain")[1]
    shown = {family.name: family for family in parse(text)}
    assert shown[declared.info].samples[0].value == 1
    for family in (*declared.process, *declared.partition):
        metric = shown[family.name.removesuffix("_total")]
        assert (metric.type, metric.documentation) == (family.kind, family.meaning)
        # A cluster without certificates has no samples about them.
        assert metric.samples or "_tls_" in family.name, family.name


async def test_append_increases_the_counters(cluster: LocalCluster) -> None:
    servers = [server.http for server in cluster.plan.servers]
    storage = cluster.plan.storages[0].http

    def counted() -> tuple[float, float, float]:
        each = [samples(port) for port in servers]
        return (
            sum(one["waltz_server_partition_committed_appends_total"].get("1", 0) for one in each),
            sum(one["waltz_server_partition_append_seconds_count"].get("1", 0) for one in each),
            samples(storage)["waltz_storage_flushes_total"][""],
        )

    before = counted()
    async with waltz.connect(cluster.zookeeper, root=cluster.root, tls=waltz.PLAINTEXT) as client:
        for _ in range(3):
            await client.append(1, b"x")
    after = counted()
    assert after[0] - before[0] == 3
    assert after[1] - before[1] == 3
    assert after[2] > before[2]
    owners = [one for one in map(samples, servers) if "1" in one["waltz_server_partition_open"]]
    (owner,) = owners
    assert owner["waltz_server_partition_open"]["1"] == 1
    assert owner["waltz_server_healthy"] == {"": 1}
    disk = samples(storage)
    free, size = disk["waltz_storage_disk_free_bytes"], disk["waltz_storage_disk_size_bytes"]
    assert 0 < free[""] <= size[""]
