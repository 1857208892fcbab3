"""Test the time limits of verbs: the error names the limit that was reached, and what it is for."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from waltz.cli.admin_access import open_admin
from waltz.cli.app import app
from waltz.cli.cluster import commands as cluster_commands
from waltz.cli.cluster_options import Target
from waltz.cli.doctor import commands as doctor_commands
from waltz.cli.running import USUAL_SECONDS, Failed, network_of, run, tls_of
from waltz.cli.server import commands as server_commands
from waltz.client.outside import OutsideNetwork
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.server_transport import Transport
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.transport import declare_transport
from waltz.net import PLAINTEXT, TCP, TlsConfig
from waltz.testing.zookeeper import MemoryZooKeeper


async def never_ends() -> None:
    await asyncio.Event().wait()


async def times_out() -> None:
    async with asyncio.timeout(0):
        await never_ends()


def test_verb_that_reaches_its_limit_fails_with_that_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(never_ends(), seconds=0.01)
    assert ended.value.exit_code == 1
    text = "waltz: the command did not finish within 0.01 s and was stopped\n"
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("seconds", [60.0, None])
def test_timeout_inside_verb_is_not_reported_as_limit_of_verb(
    capsys: pytest.CaptureFixture[str], seconds: float | None
) -> None:
    with pytest.raises(TimeoutError):
        run(times_out(), seconds=seconds)
    assert "did not finish" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "verb"),
    [
        (doctor_commands, "doctor"),
        (server_commands, "server list"),
        (cluster_commands, "cluster verify"),
        (cluster_commands, "cluster check-connectivity"),
    ],
)
def test_limit_of_a_verb_leaves_time_for_the_answers_that_its_timeout_allows(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, verb: str
) -> None:
    """A server has the timeout for the handshake and for each of three requests."""
    limits: list[float] = []

    def record_limit(
        work: Coroutine[Any, Any, object], seconds: float | None = USUAL_SECONDS
    ) -> None:
        work.close()
        limits.append(math.inf if seconds is None else seconds)
        raise typer.Exit

    monkeypatch.setattr(module, "run", record_limit)
    CliRunner().invoke(app, [*verb.split(), "-z", "127.0.0.1:1", "--timeout", "100"])
    (limit,) = limits
    assert limit > 4 * 100


async def test_open_admin_of_silent_storage_fails_with_its_name_and_limit() -> None:
    silent = await asyncio.start_server(lambda _reader, _writer: never_ends(), "127.0.0.1", 0)
    storage, port = "127.0.0.1:7", silent.sockets[0].getsockname()[1]
    store = MemoryZooKeeper().connect()
    maps = assign_everything({storage: 0}, {storage: port}, 1)
    await create_cluster(store, "/waltz", "test", 1, key=uuid.UUID(int=7), storages=maps)
    try:
        with pytest.raises(Failed, match=r"storage 127\.0\.0\.1:7 did not answer within 0\.05 s"):
            await open_admin(Cluster(store, "/waltz"), maps, storage, PLAINTEXT, seconds=0.05)
    finally:
        silent.close()


async def opens_a_missing_file() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/backup/orders")


def test_verb_whose_file_cannot_be_used_fails_with_the_name_of_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(opens_a_missing_file())
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == "waltz: /backup/orders: No such file or directory\n"


async def test_network_of_a_verb_dials_outside_addresses_only_with_the_access_outside() -> None:
    cluster = Cluster(MemoryZooKeeper().connect(), "/test")
    inside = Target("z:1", "/test", None)
    assert network_of(inside, cluster) is TCP
    assert isinstance(network_of(replace(inside, access="outside"), cluster), OutsideNetwork)


async def test_tls_of_a_verb_follows_the_servers_unless_given() -> None:
    cluster = Cluster(MemoryZooKeeper().connect(), "/test")
    await create_cluster(cluster.store, "/test", "test", 1, key=uuid.UUID(int=7))
    follows, given = Target("z:1", "/test", None), Target("z:1", "/test", TlsConfig())
    assert await tls_of(follows, cluster) == TlsConfig()
    await declare_transport(cluster, "server:1", Transport.PLAINTEXT)
    assert await tls_of(follows, cluster) == PLAINTEXT
    assert await tls_of(given, cluster) == TlsConfig()
