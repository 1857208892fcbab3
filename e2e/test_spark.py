"""Test that Spark on Kubernetes reads a cluster's log by the commands of docs/spark.md."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from typing import Any

import pytest

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.waiting import until
from tests.docs.console import blocks

PAGE = resources.REPOSITORY / "docs" / "spark.md"
PAGE_NAMESPACE = "orders"
SPARK = resources.REPOSITORY / "examples" / "kubernetes" / "spark"
ACCOUNT = SPARK / "account.yaml"
FILL = """
import asyncio, json, os, ssl
from pathlib import Path
import waltz

async def fill():
    place = Path(os.environ["TLS"])
    tls = waltz.TlsConfig(
        ca=place / "ca.crt", certificate=place / "tls.crt", key=place / "tls.key",
        server_name=os.environ["TLS_NAME"],
    )
    counts = {}
    async with waltz.connect(os.environ["ZOOKEEPER"], root=os.environ["ROOT"], tls=tls) as client:
        for partition in range(client.num_partitions):
            drafts = [waltz.Draft(bytes(100))] * (300 + partition)
            await client.bulk.append(partition, drafts)
            counts[partition] = await client.high_water_mark(partition) + 1
    print(json.dumps(counts))

asyncio.run(fill())
"""
"""Appends to every partition; prints the number of transactions by partition."""
_PARTITIONS = 4
_READY_SECONDS = 300.0


@pytest.fixture(scope="module")
def log(module_namespace: Kubectl) -> Kubectl:
    """The namespace of a cluster to which nothing else appends."""
    pools = "abc"
    module_namespace.apply(
        *(resources.pool(name) for name in pools),
        resources.cluster("log", list(pools), partitions=_PARTITIONS),
    )
    module_namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    return module_namespace


@pytest.fixture(scope="module")
def counts(log: Kubectl) -> dict[str, int]:
    """Fill the log; return the number of transactions by partition."""
    pod = resources.client_pod("fill", "log", log.namespace, ["python3", "-c", FILL])
    log.apply(pod)
    phase = until(lambda: final_phase(log, "fill"), 120, "the log is filled", show=log.describe)
    printed = log("logs", "fill")
    log.delete("pod", "fill")
    assert phase == "Succeeded", printed
    filled: dict[str, int] = json.loads(printed.strip().splitlines()[-1])
    return filled


def final_phase(kubectl: Kubectl, pod: str) -> str | None:
    """Return the phase of a pod that has ended, otherwise None."""
    live = kubectl.get("pod", pod)
    phase = None if live is None else live["status"]["phase"]
    return phase if phase in ("Succeeded", "Failed") else None


def commands_of(first: str) -> str:
    """Return the commands in the block of the page that starts with ``first``."""
    shell_blocks = (block for block in blocks(PAGE) if block.language == "sh")
    [text] = [block.text for block in shell_blocks if block.text.startswith(first)]
    return text


def run_commands(log: Kubectl, commands: str) -> str:
    """Run commands of the page in the namespace of the cluster; return their output."""
    commands = commands.replace(PAGE_NAMESPACE, log.namespace)
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=resources.REPOSITORY,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def report_in(printed: str) -> dict[str, Any]:
    """Return the report of the job: the last line of JSON that the driver has printed."""
    lines = [line for line in printed.splitlines() if line.startswith('{"transactions"')]
    assert lines, printed[-3000:]
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def test_spark_client_mode_job_reads_the_whole_log(log: Kubectl, counts: dict[str, int]) -> None:
    report = report_in(run_commands(log, commands_of("kubectl create configmap")))
    assert report["transactions"] == counts
    # The pods that read are executors.
    assert report["pods"]
    assert all("-exec-" in pod for pod in report["pods"])


def test_spark_submit_in_cluster_mode_reads_the_whole_log(
    log: Kubectl, counts: dict[str, int]
) -> None:
    report = report_in(run_commands(log, commands_of("spark-submit")))
    assert report["transactions"] == counts
    assert all("-exec-" in pod for pod in report["pods"])
    [driver] = log.find("pod", "spark-role=driver")
    assert driver["status"]["phase"] == "Succeeded"
