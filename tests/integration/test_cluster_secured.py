"""Mutual TLS with processes: names, certificates replaced at runtime, graceful stop."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner, Result

import waltz
from tests.integration.secured import HOST, SecuredCluster, exit_status
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from waltz.admin import ServerUnreachable
from waltz.admin.server_query import ServerQuery
from waltz.cli.app import app
from waltz.client.opening import Opening
from waltz.net import PLAINTEXT, TlsConfig
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

NAME = "waltz"
DOCTOR = ["doctor", "--min-disk-free", "0"]  # The disk of this machine may be almost full.


@pytest.fixture
def old(tmp_path: Path) -> Authority:
    return authority(tmp_path, "old")


@pytest.fixture
async def cluster(
    tmp_path: Path, zookeeper: str, zk_root: str, old: Authority
) -> AsyncIterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path, zookeeper, zk_root, old.issue(NAME, server_name=NAME))
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


def authority(tmp_path: Path, name: str) -> Authority:
    folder = tmp_path / name
    folder.mkdir()
    return Authority(folder, name)


def connect(cluster: SecuredCluster, tls: TlsConfig) -> Opening[waltz.Client]:
    return waltz.connect(cluster.zookeeper, root=cluster.root, tls=tls)


async def refusal(cluster: SecuredCluster, tls: TlsConfig) -> str:
    """Return the error of a request to the server, empty if it succeeds."""
    try:
        async with await ServerQuery.open((HOST, cluster.server_ports["port"]), tls) as query:
            await query.partitions()
    except ServerUnreachable as refused:
        return str(refused)
    return ""


def command(cluster: SecuredCluster, *arguments: str) -> Result:
    """Run a verb of `waltz` with the options that name the cluster, and no settings of TLS."""
    where = ["--zookeeper", cluster.zookeeper, "--root", cluster.root]
    return CliRunner().invoke(app, [*arguments, *where])


def show_servers(cluster: SecuredCluster, *options: str) -> Result:
    return command(cluster, "server", "list", "--output", "json", *options)


async def assert_reached_without_tls_settings(cluster: SecuredCluster, data: bytes) -> None:
    """Check that every way into the cluster follows what its server has declared."""
    async with waltz.connect(cluster.zookeeper, root=cluster.root) as client:
        transaction = await client.append(0, data)
        assert await client.read(0, transaction) == data
    for verb in (["log", "tail", "0", "-n", "1"], ["cluster", "verify"], DOCTOR):
        done = await asyncio.to_thread(command, cluster, *verb)
        assert done.exit_code == 0, (verb, done.output)


async def assert_refused(cluster: SecuredCluster, tls: TlsConfig, reason: str) -> None:
    """Check that settings that are given fail within seconds, and are not changed."""
    async with asyncio.timeout(10):
        with pytest.raises(waltz.ClusterUnreachable, match=reason):
            await connect(cluster, tls)


async def test_cluster_is_reached_without_tls_settings_before_and_after_a_change_to_tls(
    tmp_path: Path, zookeeper: str, zk_root: str, old: Authority
) -> None:
    """Without a CA, servers require no certificate, so clients need no settings at all."""
    uses, does_not_use = "uses TLS, and this client does not", "does not use TLS, and this client"
    encrypted = replace(old.issue(NAME), ca=None)
    cluster = SecuredCluster(tmp_path, zookeeper, zk_root, PLAINTEXT)
    try:
        await cluster.start()
        await eventually(lambda: "declared that clients use plaintext" in cluster.log_of("server"))
        await assert_reached_without_tls_settings(cluster, b"plaintext")
        await assert_refused(cluster, TlsConfig(), does_not_use)
        refused = await asyncio.to_thread(command, cluster, "log", "tail", "0", "--tls", "on")
        assert refused.exit_code == 1
        assert does_not_use in refused.output

        await cluster.restart(encrypted)
        await eventually(lambda: "declared that clients use tls" in cluster.log_of("server"))
        await assert_reached_without_tls_settings(cluster, b"TLS")
        await assert_refused(cluster, PLAINTEXT, uses)
        refused = await asyncio.to_thread(command, cluster, "log", "tail", "0", "--tls", "off")
        assert refused.exit_code == 1
        assert uses in refused.output
    finally:
        await cluster.stop()


async def test_client_without_settings_is_sent_to_its_missing_certificate(
    cluster: SecuredCluster, old: Authority, tmp_path: Path
) -> None:
    """The servers have declared TLS; a client needs a certificate, because they have a CA."""
    async with asyncio.timeout(30):
        with pytest.raises(
            waltz.ClusterUnreachable, match=r"requires a certificate .*certificate, key and ca"
        ):
            await waltz.connect(cluster.zookeeper, root=cluster.root)
        # Settings that are given are never changed to what the servers have declared.
        with pytest.raises(waltz.ClusterUnreachable, match="uses TLS, and this client does not"):
            await connect(cluster, PLAINTEXT)
    refused = await asyncio.to_thread(show_servers, cluster)
    assert "show one by tls.certificate and tls.key" in refused.output
    tls = old.issue("client", server_name=NAME)
    file = tmp_path / "tls.yml"
    file.write_text(f"certificate: {tls.certificate}\nkey: {tls.key}\nca: {tls.ca}\n")
    with file.open("a") as more:
        more.write(f"serverName: {NAME}\n")
    shown = await asyncio.to_thread(show_servers, cluster, "--tls", str(file))
    assert shown.exit_code == 0, shown.output


def install(source: TlsConfig, folder: Path) -> None:
    """Replace the files that the processes use, each atomically."""
    for file, name in (
        (source.certificate, f"{NAME}.pem"),
        (source.key, f"{NAME}.key"),
        (source.ca, "old.pem"),
    ):
        assert file is not None
        shutil.copy(file, folder / "part")
        os.replace(folder / "part", folder / name)


async def test_certificates_replaced_at_runtime_apply_to_new_connections(
    cluster: SecuredCluster, old: Authority, tmp_path: Path
) -> None:
    new = authority(tmp_path, "new")
    # Copies, because the files of the old authority are replaced.
    shutil.copy(old.ca, tmp_path / "kept.pem")
    old_tls = replace(old.issue("client", server_name=NAME), ca=tmp_path / "kept.pem")
    new_tls = new.issue("client", server_name=NAME)

    async with connect(cluster, old_tls) as early:
        assert await early.append(0, b"before") == 0
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(cluster, new_tls)

        install(new.issue(NAME), tmp_path / "old")

        assert await refusal(cluster, new_tls) == ""
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(cluster, old_tls)
        assert await early.append(0, b"on the open connection") == 1
        async with connect(cluster, new_tls) as late:
            assert await late.append(0, b"after") == 2
            assert await late.read(0, 0) == b"before"
    assert "TLS files changed: new connections use them" in cluster.log_of("server")


async def test_peer_with_a_wrong_or_missing_certificate_is_refused_and_logged(
    cluster: SecuredCluster, old: Authority
) -> None:
    other = await refusal(cluster, old.issue("client", server_name="other"))
    assert other.endswith(
        "its certificate is not valid for 'other': set tls.serverName to a name that the "
        "certificates of all peers contain"
    )
    without = TlsConfig(ca=old.ca, server_name=NAME)
    assert await refusal(cluster, without)
    await eventually(lambda: "a client/server connection from" in cluster.log_of("server"))


async def test_process_reports_its_ports_and_the_expiry_of_its_certificate(
    cluster: SecuredCluster,
) -> None:
    ports = cluster.server_ports
    assert f"server ready: port={ports['port']} http={ports['http']}" in cluster.log_of("server")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{ports['http']}/metrics") as answer,
    ):
        gauges = (await answer.json())["gauges"]
    left = gauges["waltz-server.tls-certificate-days-left"]["value"]
    assert left == pytest.approx(30, abs=0.5)


async def test_processes_that_are_stopped_finish_their_open_appends(
    cluster: SecuredCluster, old: Authority, tmp_path: Path
) -> None:
    async with connect(cluster, old.issue("client", server_name=NAME)) as client:
        await client.append(0, b"first")
        appends = [asyncio.create_task(client.append(0, b"%d" % n)) for n in range(500)]
        await eventually(lambda: any(task.done() for task in appends))
        assert await exit_status(cluster.server) == 0
        assert "were not done" not in cluster.log_of("server")
        cluster.server.start()
        ids = await asyncio.wait_for(asyncio.gather(*appends), 60)
        assert sorted(ids) == list(range(1, 501))
        assert await client.high_water_mark(0) == 500
    assert await exit_status(cluster.server) == 0
    assert await exit_status(cluster.storage) == 0
    disk = PosixDisk(tmp_path / "data")
    directory = StorageDirectory(disk, cluster.key, 1, LogOptions(lambda: 1, 1 << 30))
    assert directory.partition(0).records(0, 1 << 30).count == 501
    directory.close()
