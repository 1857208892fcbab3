"""A cluster whose server registers a name that this machine cannot resolve, behind a forwarder.

So whatever reaches the server has dialed its outside address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import waltz
from tests.chaos.proxies import Proxy
from tests.integration.secured import SecuredCluster
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from waltz.cli.app import app
from waltz.client.opening import Opening

INSIDE, OUTSIDE = "server.invalid", "localhost"
"""The host that the server registers, and the one in its certificate, which clients dial."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
async def cluster(
    tmp_path: Path, zookeeper: str, zk_root: str, authority: Authority
) -> AsyncIterator[SecuredCluster]:
    tls = replace(authority.issue(OUTSIDE), ca=None)
    cluster = SecuredCluster(tmp_path, zookeeper, zk_root, tls, INSIDE)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


def connect(
    cluster: SecuredCluster, authority: Authority, seconds: float = 30.0
) -> Opening[waltz.Client]:
    """Open a client that verifies the host that it dials."""
    return waltz.connect(
        cluster.zookeeper,
        root=cluster.root,
        tls=waltz.TlsConfig(ca=authority.ca),
        access="outside",
        connect_timeout=seconds,
        answer_timeout=seconds,
    )


async def command(cluster: SecuredCluster, *arguments: str) -> Result:
    """Run a verb of `waltz` with the options that name the cluster."""
    where = ["--zookeeper", cluster.zookeeper, "--root", cluster.root, "--access", "outside"]
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *where])


async def test_cluster_is_reached_by_outside_addresses_only(
    tmp_path: Path, cluster: SecuredCluster, authority: Authority
) -> None:
    port = cluster.server_ports["port"]
    registered = f"{INSIDE}:{port}"
    await eventually(lambda: "server 1: joined" in cluster.log_of("server"))
    with pytest.raises(waltz.ClusterUnreachable, match=f"{registered} has no outside address"):
        await connect(cluster, authority, 0.5)
    async with Proxy(0, port) as first, Proxy(0, port) as second:
        pair = f"{registered}={OUTSIDE}:{first.port}"
        done = await command(cluster, "cluster", "outside", "set", pair)
        assert done.exit_code == 0, done.output
        client = await connect(cluster, authority)
        assert await client.append(0, b"a") == 0
        assert await client.read(0, 0) == b"a"
        assert first.accepted
        # The load balancer gets another address.
        pair = f"{registered}={OUTSIDE}:{second.port}"
        assert (await command(cluster, "cluster", "outside", "set", pair)).exit_code == 0
        assert not second.accepted
        await first.stop()
        assert await client.append(0, b"b") == 1
        assert second.accepted
        await client.close()
        for verb in (["log", "tail", "0", "-n", "1"], ["server", "list"], ["top", "--once"]):
            before = second.accepted
            done = await command(cluster, *verb)
            assert done.exit_code == 0, (verb, done.output)
            assert second.accepted > before, verb
        await assert_settings_file_is_followed(tmp_path, cluster, authority)
        # The certificate has no such name.
        pair = f"{registered}=127.0.0.1:{second.port}"
        assert (await command(cluster, "cluster", "outside", "set", pair)).exit_code == 0
        client = await connect(cluster, authority, 5.0)
        with pytest.raises(waltz.AnswerLate, match=rf"127\.0\.0\.1.*address of {INSIDE}:{port}\)"):
            await client.high_water_mark(0, timeout=1.0)
        await client.close()


async def assert_settings_file_is_followed(
    tmp_path: Path, cluster: SecuredCluster, authority: Authority
) -> None:
    """Check that a client whose settings file says `outside` dials the outside address."""
    file = tmp_path / "client.yml"
    file.write_text(
        f"zookeeper: {{connectString: '{cluster.zookeeper}', sessionTimeout: 6000}}\n"
        f"cluster.root: {cluster.root}\n"
        f"client: {{access: outside, tls: {{enabled: true, ca: {authority.ca}}}}}\n"
    )
    async with waltz.connect_as_configured(file) as client:
        assert await client.append(0, b"c") == 2
