"""One cluster of old and new processes, used by old and new clients, operated by new commands.

A server, and two of four storages, speak no more than Waltz 0.13.2 does. The tests follow one
another: each leaves the cluster as it found it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import waltz
from tests.counting import Counting
from tests.load import read_log
from tests.versions import NEW, OLD, check_version, client_of_version, older_programs
from waltz.admin.core.retirement import Retirement
from waltz.admin.execution import OrderExecutor, carry_out
from waltz.cli.app import app
from waltz.local import LocalCluster, Shape

GOES_ON_WITHIN_S = 15.0
PARTITIONS = 2
OLDER = ("server/0", "storage/0", "storage/1")
NEWER = ("server/1", "storage/2", "storage/3")
SPARE = 3
"""The storage that is in the group of the first, and holds nothing."""

SMALL_CACHES = {"server.feedCacheSize": 4 << 10, "server.transactionDataCacheSize": 64 << 10}
"""So that servers have to read from storages."""

MUCH = [b"%d" % number + bytes(1 << 20) for number in range(18)]
"""More than a server keeps in memory for a storage that is away."""


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
    asyncio.run(prepare(cluster))
    yield cluster
    asyncio.run(cluster.stop())


async def prepare(cluster: LocalCluster) -> None:
    """Empty the fourth storage and put it into the group of the first; check who is what."""
    spare = cluster.plan.storages[SPARE]
    async with cluster.metadata() as metadata:
        await carry_out(Retirement(SPARE), OrderExecutor(metadata, cluster.tls))
        await metadata.remove_storage_node(spare.address)
        await metadata.add_storage_node(spare.address, 0, spare.admin)
    await cluster.healthy()
    for version, names in ((OLD, OLDER), (NEW, NEWER)):
        for name in names:
            await check_version(cluster, name, version)


async def partition_of(cluster: LocalCluster, server: str) -> int:
    """Return the partition that a server has; each has one."""
    port = cluster.plan.servers[int(server[-1])].port
    async with cluster.metadata() as metadata:
        view = await metadata.membership()
    (at,) = (number for number, member in view.servers().items() if member.port == port)
    (owned,) = view.assignment.servers[at]
    return owned.partition


@pytest.mark.parametrize("server", ["server/0", "server/1"], ids=["old server", "new server"])
@pytest.mark.parametrize("client", [OLD, NEW], ids=["old client", "new client"])
async def test_every_client_works_with_every_server(
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
    # So many reads of what is no longer in memory that old and new storages are asked.
    first_id = max(0, mark - 1500)
    while first_id < mark:
        found = await client.bulk.records(partition, first_id, max_records=50)
        assert [r.transaction_id for r in found.records][:1] == [first_id]
        first_id += found.records.count


async def test_operators_commands_work_on_old_and_new_storages_alike(mixed: LocalCluster) -> None:
    applications = await begin(mixed, "moving")
    plan = mixed.plan
    old, new = plan.storages[0].address, plan.storages[SPARE].address
    try:
        for source, destination in ((old, new), (new, old)):
            moved = await waltz_storage(mixed, "move", source, destination, "0", "-d", "--yes")
            assert moved.exit_code == 0, moved.output
            await go_on(applications, each=10)
            listed = {each["storage"]: each for each in await shown(mixed, "storage", "list")}
            assert all(each["problem"] is None for each in listed.values())
            held = [p["partition"] for p in listed[destination]["partitions"]]
            assert 0 in held
            verified = await shown(mixed, "cluster", "verify")
            assert verified["passed"]
    finally:
        await end(mixed, applications)
    compared = await shown(mixed, "storage", "compare", "0-1")
    assert [each["first_difference"] for each in compared] == [None, None]


async def test_what_an_old_storage_cannot_do_is_said_plainly(mixed: LocalCluster) -> None:
    old = mixed.plan.storages[0].address
    refused = await waltz_storage(mixed, "switch", old, "0", "--read", "off")
    assert refused.exit_code == 1
    assert "has one switch for both, as Waltz 0.13.2 has" in refused.stderr


@pytest.mark.parametrize("away", ["storage/0", "storage/2"], ids=["old", "new"])
async def test_a_quorum_of_either_kind_goes_on_and_feeds_what_was_away(
    mixed: LocalCluster, away: str
) -> None:
    """One of three storages is killed; another, whatever its version, has what it missed."""
    applications = await begin(mixed, f"without {away}")
    try:
        mixed.kill(away)
        await go_on(applications, each=10)
        async with client_of_version(mixed, NEW) as client:
            for partition in range(PARTITIONS):
                await asyncio.gather(*(client.append(partition, data) for data in MUCH))
        await mixed.start_one(away)
        await mixed.healthy()
        await go_on(applications, each=10)
    finally:
        await end(mixed, applications)


async def begin(cluster: LocalCluster, work: str) -> list[Counting]:
    """Have an old and a new client append and follow."""
    applications = []
    for version in (OLD, NEW):
        application = Counting(f"{version}, {work}", range(PARTITIONS))
        applications.append(application)
        await application.go(client_of_version(cluster, version))
    await go_on(applications, each=5)
    return applications


async def go_on(applications: list[Counting], each: int) -> None:
    for application in applications:
        await application.progress(GOES_ON_WITHIN_S, each)


async def end(cluster: LocalCluster, applications: list[Counting]) -> None:
    """Stop the load, and check what came of it."""
    for application in applications:
        await application.halt(GOES_ON_WITHIN_S)
    for version, application in zip((OLD, NEW), applications, strict=True):
        await application.catch_up(client_of_version(cluster, version), GOES_ON_WITHIN_S)
        application.check()


async def waltz_storage(cluster: LocalCluster, *arguments: str) -> Result:
    return await command(cluster, "storage", *arguments)


async def shown(cluster: LocalCluster, *arguments: str) -> Any:
    result = await command(cluster, *arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def command(cluster: LocalCluster, *arguments: str) -> Result:
    """Run a verb, which has an event loop of its own, beside this one."""
    where = ["--cluster", str(cluster.layout.description)]
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *where])
