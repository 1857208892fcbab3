"""The operator's process against an API server over HTTP: Lease, kopf, status, shutdown, kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.support.eventually import eventually
from tests.support.operator_world import cluster_resource
from tests.support.small_api_server import SmallApiServer
from waltz_operator import main
from waltz_operator.core.names import FINALIZER

_LEASE = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/waltz-operator"
_CLUSTER = "/apis/waltz.dev/v1alpha1/namespaces/logs/waltzclusters/log"
_START_SECONDS = 60.0
_KILLED_OPERATOR = Path(__file__).parents[3] / "e2e" / "killed_operator.py"


@pytest.fixture
async def server() -> AsyncIterator[SmallApiServer]:
    made = SmallApiServer()
    yield made
    await made.stop()


async def start(folder: Path, address: str, *command: str) -> asyncio.subprocess.Process:
    """Start Python with ``command``; by default the operator itself."""
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
        "TMPDIR": str(folder),  # An operator that has lost its Lease ends without a clean-up.
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *(command or ("-m", "waltz_operator")),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def add_cluster(server: SmallApiServer, **spec: Any) -> None:
    resource = cluster_resource(**spec)
    resource |= {"apiVersion": "waltz.dev/v1alpha1", "kind": "WaltzCluster"}
    server.add(_CLUSTER, resource)


async def test_operator_acquires_the_lease_reconciles_and_releases_it_on_sigterm(
    tmp_path: Path, server: SmallApiServer
) -> None:
    add_cluster(server, paused=True)
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
        _, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    assert server.objects[_LEASE]["spec"]["holderIdentity"] == ""
    assert "Traceback" not in stderr.decode()


async def test_killed_operators_perform_one_step_each_until_the_program_ends(
    tmp_path: Path, server: SmallApiServer
) -> None:
    """The end-to-end tests kill operators by the same program."""
    add_cluster(server)
    program = await start(tmp_path, await server.start(), str(_KILLED_OPERATOR), "1")
    assert program.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            assert await program.stdout.readline() == b"killed\n"
            assert server.objects[_CLUSTER]["metadata"]["finalizers"] == [FINALIZER]
            before = {*server.objects}
            assert await program.stdout.readline() == b"killed\n"
            assert len({*server.objects} - before) == 1
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        await program.communicate()


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_folders_of_earlier_processes_are_removed_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that loses the Lease ends at once; the volume outlives its container."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("waltz-operator-me-x1y2z3_4", "waltz-operator-me-2-x1y2z3_4"):
        (tmp_path / name / "logs" / "log").mkdir(parents=True)
        (tmp_path / name / "logs" / "log" / "tls.key").touch()
    names: list[str] = []

    @asynccontextmanager
    async def connected_api_server() -> AsyncIterator[None]:
        yield

    async def operate(_settings: object, _kube: object, folder: Path) -> None:
        names.extend(names_in(tmp_path))
        assert folder.parent == tmp_path

    monkeypatch.setattr(main, "connected_api_server", connected_api_server)
    monkeypatch.setattr(main, "_operate", operate)
    await main._run(main.OperatorConfig("ops", "logs", "me", 0))
    # The operator's own folder has a random name.
    names.remove("waltz-operator-me-2-x1y2z3_4")  # The folder of another operator stays.
    (own,) = names
    assert own.startswith("waltz-operator-me-")
    assert own != "waltz-operator-me-x1y2z3_4"


class Closing:
    """The parts of the process that are closed at its end; ``closed`` has their order."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def part(self, name: str) -> Any:
        """Return a stand-in for the class of a part."""
        closed = self.closed

        class Part:
            is_leader = True
            may_write = reconcile = check = progress = problem = None

            def __init__(self, *_: object, **__: object) -> None:
                pass

            async def acquire(self) -> None:
                pass

            async def renew_until_lost(self) -> None:
                await asyncio.Event().wait()

            async def close(self) -> None:
                closed.append(name)

            release = close

        return Part


async def test_lease_is_released_after_the_last_reconcile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another operator begins while this one still changes a cluster."""
    closing = Closing()
    for name in ("LeaderElection", "NetworkEnvironment", "Controller", "Liveness"):
        monkeypatch.setattr(main, name, closing.part(name))

    async def run_kopf(*_: object) -> None:
        pass

    @asynccontextmanager
    async def serve_http(*_: object) -> AsyncIterator[None]:
        yield

    async def watch_owned(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(main, "_run_kopf", run_kopf)
    monkeypatch.setattr(main, "serve_http", serve_http)
    monkeypatch.setattr(main, "watch_owned", watch_owned)
    await main._operate(main.OperatorConfig("ops", "logs", "me", 0), cast(Any, None), tmp_path)
    assert closing.closed == ["Controller", "NetworkEnvironment", "LeaderElection"]
