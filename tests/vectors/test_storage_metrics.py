"""The metrics of the admin port have all names of the vectors, in the same form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from waltz.net import AcceptedConnections
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.differences import Differences
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.metrics import StorageSources, storage_metrics

_GROUP = "waltz-storage"
_KINDS = ("gauges", "counters", "histograms", "meters", "timers")


def _ours(names: Any) -> set[str]:
    return {name for name in names if name.startswith(_GROUP)}


def test_admin_port_metrics_have_all_names_of_the_recorded_ones(vectors: Path) -> None:
    expected = json.loads((vectors / "storage-metrics.json").read_text())
    count = expected["gauges"][f"{_GROUP}.waltz-storage-num-partitions"]["value"]
    directory = StorageDirectory(MemoryDisk(), UUID(int=1), count, LogOptions(lambda: 1))
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
    metrics = storage_metrics(sources, lambda: 1.0)
    metrics.json.bean_form()
    for partition in expected["gauges"][f"{_GROUP}.waltz-storage-partition-ids"]["value"]:
        directory.assign(partition)
    found = json.loads(json.dumps(metrics.json.bean_form()))
    assert set(found) == set(expected)
    for kind in _KINDS:
        assert _ours(expected[kind]) <= _ours(found[kind])
        for name in _ours(expected[kind]):
            assert set(found[kind][name]) == set(expected[kind][name])
            assert found["metrics"][name] == found[kind][name]
    ids = {entry["fullName"]: entry for entry in found["ids"]}
    for entry in expected["ids"]:
        if entry["fullName"].startswith(_GROUP):
            assert ids[entry["fullName"]] == entry
    directory.unassign(0, delete_files=True)
    assert f"{_GROUP}.partition-0.flags" not in metrics.json.bean_form()["gauges"]
