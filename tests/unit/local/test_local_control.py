"""Test that a local cluster runs exactly while its supervisor does."""

from __future__ import annotations

import fcntl
import json
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.local import ClusterLayout, Shape
from waltz.local.core.plan import LocalClusterPlan, describe


@pytest.fixture
def described(tmp_path: Path) -> ClusterLayout:
    """The directory of a cluster that has written ``cluster.json``."""
    layout = ClusterLayout(tmp_path)
    plan = LocalClusterPlan.of(Shape(partitions=1, storages=1, servers=1), count(20_000))
    layout.description.write_text(json.dumps(describe(plan, layout, {}, None)))
    layout.lock.touch()
    return layout


def status(layout: ClusterLayout) -> Result:
    arguments = ["local", "status", "-o", "json", "--dir", str(layout.directory)]
    return CliRunner().invoke(app, arguments)


def test_status_of_running_cluster_shows_its_processes(described: ClusterLayout) -> None:
    with described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shown = status(described)
    assert shown.exit_code == 0
    assert list(json.loads(shown.stdout)["processes"]) == ["zookeeper", "storage/0", "server/0"]


@pytest.mark.parametrize("lock_exists", [True, False])
def test_status_after_supervisor_was_killed_has_exit_status_1(
    described: ClusterLayout, lock_exists: bool
) -> None:
    if not lock_exists:
        described.lock.unlink()
    shown = status(described)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert "the supervisor of the cluster" in shown.stderr
    assert f"waltz local down --dir {described.directory}" in shown.stderr


def test_status_without_cluster_has_exit_status_1(tmp_path: Path) -> None:
    shown = status(ClusterLayout(tmp_path))
    assert shown.exit_code == 1
    assert "no cluster runs in" in shown.stderr
