"""Test ``waltz top`` on a running cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.local import LocalCluster


def test_top_once_prints_one_sample(cluster: LocalCluster) -> None:
    where = ["--cluster", str(cluster.layout.description)]
    assert CliRunner().invoke(app, ["log", "append", "0", "x", *where]).exit_code == 0
    result = CliRunner().invoke(app, ["top", "--once", "-i", "0.2", "-o", "json", *where])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert [p["partition"] for p in shown["partitions"]] == [0, 1, 2]
    assert shown["partitions"][0]["high_water_mark"] >= 0
    assert all(p["transactions_per_second"] is not None for p in shown["partitions"])
    assert all(len(p["replicas"]) == 3 for p in shown["partitions"])
    assert [each["problem"] for each in (*shown["servers"], *shown["storages"])] == [None] * 5


def test_top_prints_samples_until_interrupted(cluster: LocalCluster) -> None:
    command = [sys.executable, "-m", "waltz.cli", "top", "-i", "0.1", "-o", "json"]
    command += ["--cluster", str(cluster.layout.description)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_restore_interrupts
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        samples = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert samples[0]["transactions_per_second"] is None
    assert samples[2]["transactions_per_second"] is not None
    assert (process.returncode, errors) == (0, b"")


def _restore_interrupts() -> None:
    """Make SIGINT effective again: a shell's background jobs inherit that it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
