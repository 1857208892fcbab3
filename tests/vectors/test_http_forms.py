"""HTTP answers and metrics have the kinds, names and keys of the vectors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import aiohttp
import pytest

from waltz.net import PLAINTEXT, AcceptedConnections
from waltz.runtime.core.json_metrics import JsonKind, JsonMetrics
from waltz.runtime.core.timer import Timer
from waltz.testing.disk import MemoryDisk
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.shell.http import start_http
from waltz_server.shell.node import ServerNode
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.differences import Differences
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.metrics import StorageSources, health, storage_metrics

_KINDS = ("gauges", "counters", "histograms", "meters", "timers")


@pytest.fixture
def recorded(vectors: Path) -> dict[str, tuple[int, str, Any]]:
    """Status, content type and body by process and path."""
    answers: dict[str, tuple[int, str, Any]] = {}
    for path, answer in json.loads((vectors / "http.json").read_text()).items():
        if isinstance(answer, dict):
            answers[path] = answer["status"], answer["contentType"], answer["body"]
            continue
        head, _, body = answer.partition("\n")
        status, content_type = head.split()
        is_json = content_type == "application/json"
        answers[path] = int(status), content_type, json.loads(body) if is_json else body
    return answers


class _Node:
    """A server as the HTTP port sees it, without ZooKeeper and storages."""

    cluster_name = "a cluster"
    server_id = 1
    endpoint = ("localhost", 55180)
    config = SimpleNamespace(
        bind_host="127.0.0.1", http_port=0, session_timeout_ms=1000, tls=PLAINTEXT
    )
    store = SimpleNamespace(health=SimpleNamespace(unhealthy_since=None))
    feed_cache_misses = data_cache_misses = 0
    accepted = AcceptedConnections()

    def __init__(self, num_partitions: int) -> None:
        cores = [Partition(n, PartitionSettings(), DataCache(1)) for n in range(num_partitions)]
        self._hosted = [SimpleNamespace(core=core, latency=Timer()) for core in cores]

    def partitions(self) -> list[Any]:
        return self._hosted

    def replicas(self) -> dict[str, list[str]]:
        return {str(h.core.id): ["a:1", "b:1"] for h in self._hosted}

    def observe_partitions(self, hosted: Any, _: Any) -> None:
        for each in self._hosted:
            hosted(each)


@pytest.fixture
async def server(recorded: dict[str, tuple[int, str, Any]]) -> AsyncIterator[str]:
    """The address of a server's HTTP port that has the recorded number of partitions."""
    health_check = recorded["server /health"][2]["server-health-check"]
    node = _Node(len(health_check["partitions"]))
    async with start_http(cast(ServerNode, node)) as port:
        yield f"http://127.0.0.1:{port}"


async def _get(address: str) -> tuple[int, str, Any]:
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        body = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, answer.content_type, json.loads(body) if is_json else body


def _names(form: Mapping[str, Any], service: str) -> dict[str, set[str]]:
    return {kind: {name for name in form[kind] if name.startswith(service)} for kind in _KINDS}


def _assert_has_all(found: Mapping[str, Any], expected: Mapping[str, Any], service: str) -> None:
    assert set(found) == set(expected)
    ours = _names(found, service)
    for kind, names in _names(expected, service).items():
        assert names <= ours[kind], kind
        for name in names:
            assert set(found[kind][name]) == set(expected[kind][name]), name


async def test_server_metrics_have_the_names_and_keys_of_the_vectors(
    server: str, recorded: dict[str, tuple[int, str, Any]]
) -> None:
    status, content_type, found = await _get(f"{server}/metrics")
    assert (status, content_type) == recorded["server /metrics"][:2]
    expected = recorded["server /metrics"][2]
    assert found["version"] == expected["version"]
    _assert_has_all(found, expected, "waltz-server")


async def test_ping_build_info_and_health_answer_as_in_the_vectors(
    server: str, recorded: dict[str, tuple[int, str, Any]]
) -> None:
    ping = await _get(f"{server}/ping")
    assert (ping[0], ping[2]) == (recorded["server /ping"][0], recorded["server /ping"][2])
    assert ping[1] == "text/plain"
    build_info = await _get(f"{server}/buildinfo")
    assert build_info[:2] == recorded["server /buildinfo"][:2]
    assert set(build_info[2]) == set(recorded["server /buildinfo"][2])
    assert await _get(f"{server}/health") == recorded["server /health"]
    assert await _get(f"{server}/health?pretty=true") == recorded["server /health"]


def test_storage_metrics_and_health_have_the_form_of_the_vectors(
    recorded: dict[str, tuple[int, str, Any]],
) -> None:
    expected = recorded["storage /metrics"][2]
    partitions = expected["gauges"]["waltz-storage.waltz-storage-partition-ids"]["value"]
    directory = StorageDirectory(MemoryDisk(), UUID(int=1), len(partitions), LogOptions(lambda: 1))
    for partition in partitions:
        directory.assign(partition)
    sources = StorageSources(
        directory,
        lambda partition: 0,
        lambda: 0,
        lambda: 0,
        lambda: 0,
        lambda: None,
        AcceptedConnections(),
        Scrubber(0, now=1.0),
        Differences(),
    )
    found = storage_metrics(sources, lambda: 1.0).json.http_form()
    _assert_has_all(json.loads(json.dumps(found)), expected, "waltz-storage")
    assert health(directory, sources.scrubber) == (True, recorded["storage /health"][2])


@pytest.mark.parametrize("form", ["http", "bean"])
def test_each_kind_of_metric_has_the_keys_of_the_vectors(
    vectors: Path, recorded: dict[str, tuple[int, str, Any]], form: str
) -> None:
    metrics, timer = JsonMetrics(iter(range(100)).__next__), Timer()
    metrics.add("g", "gauges", JsonKind.GAUGE, lambda: 1)
    metrics.add("g", "counters", JsonKind.COUNTER, lambda: 2)
    metrics.add("g", "meters", JsonKind.METER, lambda: 3)
    metrics.add("g", "timers", JsonKind.TIMER, lambda: timer)
    timer.add(0.5)
    if form == "http":
        server, storage = (recorded[f"{process} /metrics"][2] for process in ("server", "storage"))
        expected = server | {kind: server[kind] | storage[kind] for kind in _KINDS}
        found = metrics.http_form()
    else:
        expected = json.loads((vectors / "storage-metrics.json").read_text())
        found = metrics.bean_form()
    assert set(found) == set(expected)
    for kind in ("gauges", "counters", "meters", "timers"):
        sample = next(iter(expected[kind].values()))
        assert _keys(found[kind][f"g.{kind}"]) == _keys(sample)


def _keys(value: Any) -> Any:
    return {k: _keys(v) for k, v in value.items()} if isinstance(value, dict) else None
