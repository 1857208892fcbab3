"""Test the verbs that use the log as clients, against a running cluster."""

from __future__ import annotations

import json
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.local import LocalCluster


def invoke(cluster: LocalCluster, *arguments: str) -> Result:
    where = ["--cluster", str(cluster.layout.description)]
    return CliRunner().invoke(app, [*arguments, *where])


def value(cluster: LocalCluster, *arguments: str) -> Any:
    result = invoke(cluster, *arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_validate_passes_with_concurrent_clients(cluster: LocalCluster) -> None:
    options = ["--clients", "3", "-n", "20", "--interval", "1", "--partitions", "0-2"]
    validated = value(cluster, "bench", "validate", "--yes", *options)
    assert validated["passed"]
    assert validated["transactions"] == 60


def test_consume_checks_what_produce_appends(cluster: LocalCluster) -> None:
    produced = value(cluster, "bench", "produce", "--yes", "-n", "15", "-i", "0", "-p", "2")
    assert produced["transactions"] == 15
    consumed = value(cluster, "bench", "consume", "-n", "15", "-p", "2", "--from-start")
    assert consumed["passed"]
    assert consumed["transactions"] >= 15


def test_consume_fails_when_log_is_silent(cluster: LocalCluster) -> None:
    result = invoke(cluster, "bench", "consume", "-p", "1", "--timeout", "0.2")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "no transaction arrived for 0.2 s" in line


def test_consume_counts_other_records_separately(cluster: LocalCluster) -> None:
    assert invoke(cluster, "log", "append", "1", "not eight").exit_code == 0
    assert value(cluster, "bench", "validate", "--yes", "-n", "3", "-p", "1", "-i", "0")["passed"]
    consumed = value(cluster, "bench", "consume", "-n", "9", "-p", "1", "--from-start")
    assert consumed["others"] >= 1


def test_high_water_mark_prints_yaml(cluster: LocalCluster) -> None:
    shown = invoke(cluster, "log", "high-water-mark", "-o", "yaml")
    assert [each["partition"] for each in yaml.safe_load(shown.stdout)] == [0, 1, 2]
    lines = invoke(cluster, "log", "tail", "0-2", "-n", "1", "-o", "yaml")
    assert all({"id", "data"} <= each.keys() for each in yaml.safe_load_all(lines.stdout))


def test_perf_reports_rates_of_producers_and_consumers(cluster: LocalCluster) -> None:
    load = ["--clients", "2", "--in-flight", "5", "-n", "40", "--size", "100", "-p", "0-1"]
    produced = value(cluster, "bench", "producers", "--yes", *load)
    assert (produced["transactions"], produced["megabytes"]) == (80, 0.008)
    assert produced["retries_per_transaction"] == 0
    locked = value(
        cluster,
        "bench",
        "producers",
        "--yes",
        "-p",
        "0",
        "-n",
        "20",
        "--clients",
        "2",
        "--locks",
        "2",
    )
    assert locked["transactions"] == 40
    consumed = value(
        cluster, "bench", "consumers", "--yes", "-n", "200", "--size", "50", "-p", "0-1"
    )
    assert (consumed["transactions"], consumed["megabytes"]) == (200, 0.01)
    existing = value(cluster, "bench", "consumers", "--yes", "-n", "100", "--existing", "-p", "0-1")
    assert existing["transactions"] == 100


def test_server_and_cluster_commands_print_results(cluster: LocalCluster) -> None:
    reached = value(cluster, "cluster", "check-connectivity")
    assert len(reached) == 2 * 3
    assert all(each["reached"] for each in reached)
    key = value(cluster, "cluster", "key")["key"]
    assert key == value(cluster, "cluster", "show")["key"]
    ports = value(cluster, "storage", "validate")
    assert [each["admin_problem"] for each in ports] == [None] * 3
    servers = value(cluster, "server", "list")
    owned = sorted(p["partition"] for server in servers for p in server["partitions"])
    assert owned == [0, 1, 2]
    assert all(len(p["storages"]) == 3 for server in servers for p in server["partitions"])
    (alone,) = value(cluster, "server", "list", servers[0]["endpoint"])
    assert alone["id"] == servers[0]["id"]
    missing = invoke(cluster, "server", "list", "127.0.0.1:1")
    assert missing.exit_code == 1
    assert "running servers: 127.0.0.1" in missing.stderr


def test_dry_run_changes_nothing(cluster: LocalCluster) -> None:
    storage = value(cluster, "storage", "list")[0]["storage"]
    before = value(cluster, "cluster", "show")
    server = before["servers"][0]["endpoint"]
    for arguments in (
        ["storage", "add", "127.0.0.1:9", "-a", "8", "-g", "0"],
        ["storage", "availability", storage, "0-1", "off"],
        ["storage", "sync"],
        ["server", "prefer", server, "0-1"],
        ["server", "unprefer", server, "0-1"],
    ):
        result = invoke(cluster, *arguments, "--dry-run")
        assert result.exit_code == 0, (arguments, result.output)
    refused = invoke(cluster, "storage", "unassign", storage, "0", "--dry-run")
    assert "the only replica of partition 0" in refused.stderr
    running = invoke(cluster, "cluster", "delete", "local", "--dry-run")
    assert running.exit_code == 1
    assert "are running; stop them first" in running.stderr
    assert value(cluster, "cluster", "show") == before
    assert value(cluster, "cluster", "verify")["passed"]
