"""Test a cluster of old and new processes with old and new clients and new commands.

A server and two of four storages are limited to the protocol versions of Waltz 0.13.2. The tests
share the cluster: each leaves it as it was before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import waltz
from tests.support.counting import Counting
from tests.support.load import read_log
from tests.support.versions import NEW, OLD, check_version, client_of_version, older_programs
from waltz.admin.core.retirement import Retirement
from waltz.admin.execution import OrderExecutor
from waltz.admin.order_progress import carry_out
from waltz.cli.app import app
from waltz.local import LocalCluster, Shape

pytestmark = pytest.mark.slow

RESUMES_WITHIN_S = 60.0
PARTITIONS = 2
OLDER = ("server/0", "storage/0", "storage/1")
NEWER = ("server/1", "storage/2", "storage/3")
SPARE = 3
"""The storage in the group of the first that has no partitions."""

SMALL_CACHES = {"server.feedCacheSize": 4 << 10, "server.transactionDataCacheSize": 64 << 10}
"""Small enough that servers must read from storages."""

MUCH = [b"%d" % number + bytes(1 << 20) for number in range(18)]
"""More than a server keeps in memory for an absent storage."""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    shape = Shape(partitions=PARTITIONS, storages=4, servers=2)
    directory, programs = tmp_path_factory.mktemp("versions"), older_programs(*OLDER)
    cluster = LocalCluster(
        directory,
        shape,
        session_timeout_ms=3000,
        server_settings=SMALL_CACHES,
        programs=programs,
    )
    asyncio.run(cluster.start())
    try:
        asyncio.run(prepare(cluster))
        yield cluster
    finally:
        asyncio.run(cluster.stop())


async def prepare(cluster: LocalCluster) -> None:
    """Empty the fourth storage, add it to the group of the first, and check all versions."""
    spare = cluster.plan.storages[SPARE]
    async with cluster.metadata() as metadata:
        await carry_out(Retirement(SPARE), OrderExecutor(metadata, cluster.tls))
        await metadata.remove_storage_node(spare.address)
        await metadata.add_storage_node(spare.address, 0, spare.admin)
    await cluster.wait_until_healthy()
    for version, names in ((OLD, OLDER), (NEW, NEWER)):
        for name in names:
            await check_version(cluster, name, version)


async def partition_of(cluster: LocalCluster, server: str) -> int:
    """Return the one partition of a server."""
    port = cluster.plan.servers[int(server[-1])].port
    async with cluster.metadata() as metadata:
        membership = await metadata.membership()
    (at,) = (number for number, member in membership.servers().items() if member.port == port)
    (owned,) = membership.assignment.servers[at]
    return owned.partition


@pytest.mark.parametrize("server", ["server/0", "server/1"], ids=["old server", "new server"])
@pytest.mark.parametrize("client", [OLD, NEW], ids=["old client", "new client"])
async def test_old_and_new_clients_work_with_old_and_new_servers(
    mixed: LocalCluster, client: str, server: str
) -> None:
    partition = await partition_of(mixed, server)
    lock = [waltz.Lock("account", 17)]
    async with client_of_version(mixed, client) as one, client_of_version(mixed, NEW) as other:
        before = await one.high_water_mark(partition)
        sent = [b"%d" % number + b"x" * 1000 for number in range(1500)]
        ids = await asyncio.gather(*(one.append(partition, data, header=7) for data in sent))
        assert sorted(ids) == list(range(before + 1, before + 1 + len(sent)))
        by_id = dict(zip(ids, sent, strict=True))
        log = [by_id[number] for number in sorted(ids)]
        assert await read_log(one, partition, before) == log
        assert await read_log(other, partition, before) == log
        assert await one.read(partition, ids[7]) == sent[7]
        taken = await other.append(partition, b"taken", write_locks=lock)
        with pytest.raises(waltz.LockFailed) as refused:
            await one.append(partition, b"late", write_locks=lock, mark=before)
        assert refused.value.transaction_id == taken
        signed = await one.submit(partition, lambda _: waltz.Draft(b"signed", write_locks=lock))
        assert signed == await other.high_water_mark(partition)
        await use_ranges_and_batches(one, partition, offered=(client, server) == (NEW, "server/1"))


async def use_ranges_and_batches(client: waltz.Client, partition: int, offered: bool) -> None:
    mark = await client.high_water_mark(partition)
    if not offered:
        with pytest.raises(waltz.ServerTooOld):
            await client.bulk.records(partition, 0)
        with pytest.raises(waltz.ServerTooOld):
            await client.bulk.append(partition, [waltz.Draft(b"")])
        return
    drafts = [waltz.Draft(b"%d" % number) for number in range(10)]
    outcomes = await client.bulk.append(partition, drafts)
    assert outcomes == [waltz.Appended(mark + 1 + number) for number in range(10)]
    found = await client.bulk.records(partition, mark + 1)
    assert [record.data for record in found.records] == [draft.data for draft in drafts]
    headers = await client.bulk.headers(partition, mark + 1)
    assert len(headers.headers) == 10
    # Enough reads of records that are no longer in memory to reach old and new storages.
    first_id = start = max(0, mark - 1500)
    verified: list[bytes] = []
    while first_id < mark:
        found = await client.bulk.records(partition, first_id, max_records=50)
        assert [r.transaction_id for r in found.records][:1] == [first_id]
        verified += (record.data for record in found.records)
        first_id += found.records.count
    # These ranges may come as they lie on a disk, but not from an old storage.
    batches = [batch async for batch in client.batches(partition, until=first_id - 1)]
    assert [data for batch in batches for data in batch.data][start:] == verified


async def test_commands_work_on_old_and_new_storages(mixed: LocalCluster) -> None:
    applications = await start(mixed, "moving")
    plan = mixed.plan
    old, new = plan.storages[0].address, plan.storages[SPARE].address
    try:
        for source, destination in ((old, new), (new, old)):
            moved = await waltz_storage(mixed, "move", source, destination, "0", "-d", "--yes")
            assert moved.exit_code == 0, moved.output
            await progress(applications, each=10)
            listed = {each["storage"]: each for each in await shown(mixed, "storage", "list")}
            assert all(each["problem"] is None for each in listed.values())
            held = [p["partition"] for p in listed[destination]["partitions"]]
            assert 0 in held
            verified = await shown(mixed, "cluster", "verify")
            assert verified["passed"]
    finally:
        await stop(mixed, applications)
    compared = await shown(mixed, "storage", "compare", "0-1")
    assert [each["first_difference"] for each in compared] == [None, None]


async def test_command_that_an_old_storage_lacks_is_refused_with_a_reason(
    mixed: LocalCluster,
) -> None:
    old = mixed.plan.storages[0].address
    refused = await waltz_storage(mixed, "switch", old, "0", "--read", "off")
    assert refused.exit_code == 1
    assert "has one switch for reading and writing, like Waltz 0.13.2" in refused.stderr


@pytest.mark.parametrize("away", ["storage/0", "storage/2"], ids=["old", "new"])
async def test_quorum_of_mixed_versions_continues_and_catches_up_an_absent_storage(
    mixed: LocalCluster, away: str
) -> None:
    """One of three storages is killed; another one, of any version, has its transactions."""
    applications = await start(mixed, f"without {away}")
    try:
        mixed.kill(away)
        await progress(applications, each=10)
        async with client_of_version(mixed, NEW) as client:
            for partition in range(PARTITIONS):
                await asyncio.gather(*(client.append(partition, data) for data in MUCH))
        await mixed.start_one(away)
        await mixed.wait_until_healthy()
        await progress(applications, each=10)
    finally:
        await stop(mixed, applications)


async def start(cluster: LocalCluster, work: str) -> list[Counting]:
    """Start an old and a new client that append and follow."""
    applications = []
    for version in (OLD, NEW):
        application = Counting(f"{version}, {work}", range(PARTITIONS))
        applications.append(application)
        await application.start(client_of_version(cluster, version))
    await progress(applications, each=5)
    return applications


async def progress(applications: list[Counting], each: int) -> None:
    for application in applications:
        await application.wait_for_progress(RESUMES_WITHIN_S, each)


async def stop(cluster: LocalCluster, applications: list[Counting]) -> None:
    """Stop the applications and check their logs."""
    for application in applications:
        await application.stop(RESUMES_WITHIN_S)
    for version, application in zip((OLD, NEW), applications, strict=True):
        await application.catch_up(client_of_version(cluster, version), RESUMES_WITHIN_S)
        application.check()


async def waltz_storage(cluster: LocalCluster, *arguments: str) -> Result:
    return await command(cluster, "storage", *arguments)


async def shown(cluster: LocalCluster, *arguments: str) -> Any:
    result = await command(cluster, *arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def command(cluster: LocalCluster, *arguments: str) -> Result:
    """Run a verb in a thread, because it starts its own event loop."""
    where = ["--cluster", str(cluster.layout.description)]
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *where])
