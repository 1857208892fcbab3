"""The operator as a process, against an API server over HTTP: the Lease, kopf, status, the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.eventually import eventually
from tests.operator.operator_world import cluster_resource
from tests.operator.small_api_server import SmallApiServer

_LEASE = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/waltz-operator"
_CLUSTER = "/apis/waltz.dev/v1alpha1/namespaces/logs/waltzclusters/log"
_START_SECONDS = 60.0


@pytest.fixture
async def server() -> AsyncIterator[SmallApiServer]:
    made = SmallApiServer()
    yield made
    await made.stop()


async def start(folder: Path, address: str) -> asyncio.subprocess.Process:
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": address}}],
        "users": [{"name": "x", "user": {"token": "x"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    environment = {
        **os.environ,
        "KUBECONFIG": str(file),
        "WALTZ_OPERATOR_NAMESPACE": "ops",
        "WALTZ_OPERATOR_HTTP_PORT": "0",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "waltz_operator",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_it_wins_the_lease_looks_reports_and_resigns(
    tmp_path: Path, server: SmallApiServer
) -> None:
    resource = cluster_resource(paused=True)
    resource |= {"apiVersion": "waltz.dev/v1alpha1", "kind": "WaltzCluster"}
    server.add(_CLUSTER, resource)
    process = await start(tmp_path, await server.start())
    try:
        await eventually(
            lambda: process.returncode is not None or "status" in server.objects[_CLUSTER],
            _START_SECONDS,
        )
        assert process.returncode is None, (await process.communicate())[1].decode()
        holder = server.objects[_LEASE]["spec"]["holderIdentity"]
        assert holder
        assert "paused" in server.objects[_CLUSTER]["status"]["message"]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert server.objects[_LEASE]["spec"]["holderIdentity"] == ""
    assert "Traceback" not in said.decode()
