"""Replicas moved, retired and recovered under load, with processes killed at every step.

The tests follow one another on one cluster of four storages: each leaves it as it found it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner, Result

from tests.support.load import Load, client_of
from waltz.admin import NotEqual, StorageAdmin, compare_replicas
from waltz.admin.core.move import Move
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.replicas import LAG_ALLOWED
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    EqualReplicas,
    Order,
    Step,
    SwitchOff,
    SwitchOn,
    Wait,
)
from waltz.admin.execution import OrderExecutor
from waltz.admin.order_progress import NotPossible, Stalled, carry_out
from waltz.admin.replica_comparison import prove_equality, read_and_sum
from waltz.cli.app import app
from waltz.local import LocalCluster, Shape
from waltz.protocol.damaged_ranges import DamagedRange
from waltz_storage.core.log.segment_format import DATA_SUFFIX, HEADER_BYTES, segment_name

pytestmark = pytest.mark.slow

GOES_ON_WITHIN_S = 60.0
DONE_WITHIN_S = 60.0
AWAY_S = 0.5
MUCH = LAG_ALLOWED + 1000
SPARE = 3
"""The storage that is in the group of the first, and holds nothing."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("operations")
    shape = Shape(partitions=2, storages=4, servers=2)
    cluster = LocalCluster(directory, shape, session_timeout_ms=3000)
    asyncio.run(cluster.start())
    asyncio.run(append_much(cluster))
    asyncio.run(make_spare(cluster))
    yield cluster
    asyncio.run(cluster.stop())


async def append_much(cluster: LocalCluster) -> None:
    """Append so much to partition 0 that an offline copy comes before the copy by servers."""
    async with client_of(cluster) as client:
        await asyncio.gather(*(client.append(0, b"x") for _ in range(MUCH)))


async def make_spare(cluster: LocalCluster) -> None:
    """Retire the fourth storage's group, and put it into the group of the first, without load."""
    spare = cluster.plan.storages[SPARE]
    async with operating(cluster) as operator:
        await carry_out(Retirement(SPARE), operator)
    async with cluster.metadata() as metadata:
        await metadata.remove_storage_node(spare.address)
        await metadata.add_storage_node(spare.address, 0, spare.admin)
    await cluster.wait_until_healthy()


@asynccontextmanager
async def operating(cluster: LocalCluster) -> AsyncIterator[OrderExecutor]:
    async with cluster.metadata() as metadata:
        yield OrderExecutor(metadata, cluster.tls, answer_seconds=2.0)


class ProcessKiller:
    """Kills the next of its victims at each new step, and starts it again a little later."""

    def __init__(self, cluster: LocalCluster, victims: list[str]) -> None:
        self.steps: list[Step] = []
        self._cluster = cluster
        self._victims = victims
        self._restarts: list[asyncio.Task[None]] = []

    def __call__(self, step: Step | Wait) -> None:
        if isinstance(step, Wait) or step in self.steps:
            return
        self.steps.append(step)
        if self._victims and all(task.done() for task in self._restarts):
            victim = self._victims.pop(0)
            self._cluster.kill(victim)
            self._restarts.append(asyncio.create_task(self._restart(victim)))

    async def over(self) -> None:
        await asyncio.gather(*self._restarts)

    async def _restart(self, victim: str) -> None:
        await asyncio.sleep(AWAY_S)
        await self._cluster.start_one(victim)


def address(cluster: LocalCluster, index: int) -> str:
    return cluster.plan.storages[index].address


async def replicas_of(cluster: LocalCluster, partition: int) -> set[str]:
    async with cluster.metadata() as metadata:
        return set((await metadata.replica_assignments()).value.storages_of(partition))


@asynccontextmanager
async def under_load(cluster: LocalCluster) -> AsyncIterator[Load]:
    """Append continuously; at the end nothing is lost, all is healthy, and replicas are equal."""
    async with Load(cluster) as load:
        await load.wait_for_progress(GOES_ON_WITHIN_S)
        yield load
        await load.wait_for_progress(GOES_ON_WITHIN_S)
        await load.finish(GOES_ON_WITHIN_S)
        await load.check()
    await cluster.wait_until_healthy()
    async with cluster.metadata() as metadata:
        for partition in range(cluster.plan.shape.partitions):
            compared = await compare_replicas(metadata, cluster.tls, partition)
            assert compared.last_id > 0
            assert compared.is_sound
            assert not compared.ends


async def performed(
    cluster: LocalCluster, order: Order, victims: tuple[str, ...] = ()
) -> list[Step]:
    """Perform an order while victims are killed; return the steps."""
    killer = ProcessKiller(cluster, list(victims))
    async with operating(cluster) as operator, asyncio.timeout(DONE_WITHIN_S):
        await carry_out(order, operator, on_step=killer)
    await killer.over()
    return killer.steps


async def moving(cluster: LocalCluster) -> Move:
    """Return what moves partition 0 between the two storages of group 0, whichever has it."""
    pair = [address(cluster, 0), address(cluster, SPARE)]
    pair.sort(key=(await replicas_of(cluster, 0)).__contains__)
    destination, source = pair
    return Move(0, source, destination, delete_files=True)


@pytest.mark.parametrize(
    "victims",
    [
        ("storage/1", "storage/2", "storage/0", "storage/1"),
        ("storage/0", "server/0", "storage/3", "server/1"),
    ],
    ids=["others", "source, destination and servers"],
)
async def test_partition_moves_while_processes_are_killed(
    running: LocalCluster, victims: tuple[str, ...]
) -> None:
    order = await moving(running)
    async with under_load(running):
        steps = await performed(running, order, victims)
        assert {type(step) for step in steps} >= {
            CreateReplicas,
            SwitchOff,
            CopyReplica,
            SwitchOn,
            ChangeAssignment,
            DropReplicas,
        }
        holding = await replicas_of(running, 0)
        assert order.destination in holding
        assert order.source not in holding


async def test_interrupted_move_continues(running: LocalCluster) -> None:
    order = await moving(running)
    async with under_load(running):
        for attempt in itertools.count(1):
            with contextlib.suppress(TimeoutError):
                async with operating(running) as operator, asyncio.timeout(0.1 * attempt):
                    await carry_out(order, operator)
                    break


async def test_group_is_retired_while_processes_are_killed(running: LocalCluster) -> None:
    retired = running.plan.storages[1]
    async with under_load(running) as load:
        steps = await performed(running, Retirement(1), ("storage/2", "server/0"))
        assert {type(step) for step in steps} >= {ChangeAssignment, DropReplicas}
        for partition in range(running.plan.shape.partitions):
            assert retired.address not in await replicas_of(running, partition)
        await load.wait_for_progress(GOES_ON_WITHIN_S)
        async with running.metadata() as metadata:
            await metadata.assign_partitions(retired.address, (0, 1))
        await running.sync("storage/1")
        await running.wait_until_healthy()


async def test_emptied_replica_is_recovered_while_processes_are_killed(
    running: LocalCluster,
) -> None:
    async with under_load(running) as load:
        running.kill("storage/1")
        emptied = running.layout.data("storage/1")
        shutil.rmtree(emptied)
        emptied.mkdir()
        await load.wait_for_progress(GOES_ON_WITHIN_S)
        await running.start_one("storage/1")
        order = ReplicaRecovery(0, address(running, 1))
        steps = await performed(running, order, ("storage/1", "server/1"))
        # What comes after it, servers may have done before the order was resumed.
        assert CreateReplicas in {type(step) for step in steps}
        await running.sync("storage/1")


async def test_range_checksum_of_storage_matches_its_records(
    running: LocalCluster,
) -> None:
    async with running.metadata() as metadata:
        params = await metadata.store_params()
    ports = running.plan.storages[1]
    opened = StorageAdmin.open(ports.address, ports.admin, running.tls, params)
    async with await opened as admin:
        summed = await admin.range_checksum(0, 10, MUCH - 1)
        assert summed.num_bytes > MUCH
        assert await read_and_sum(admin, 0, 10, MUCH - 1) == summed


async def test_damaged_record_is_repaired_by_recover(running: LocalCluster) -> None:
    running.kill("storage/2")
    segment = running.layout.data("storage/2") / "0" / f"{segment_name(0)}{DATA_SUFFIX}"
    with segment.open("r+b") as file:
        file.seek(HEADER_BYTES + 20)
        file.write(b"rot")
    await running.start_one("storage/2")
    await running.wait_until_healthy()
    ports, where = running.plan.storages[2], ["--cluster", str(running.layout.description)]
    async with running.metadata() as metadata:
        params = await metadata.store_params()
    async with await StorageAdmin.open(ports.address, ports.admin, running.tls, params) as admin:
        damaged = await admin.damaged_ranges()
        async with asyncio.timeout(DONE_WITHIN_S):
            while not damaged:
                await asyncio.sleep(0.1)
                damaged = await admin.damaged_ranges()
        assert damaged == (DamagedRange(0, 0, 0),)
        arguments = ["storage", "recover", ports.address, "0", *where]
        recovered = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert recovered.exit_code == 0, recovered.stderr
        repaired = f"record 0 of partition 0 is repaired at storage {ports.address} from storage"
        assert repaired in recovered.stderr
        assert await admin.damaged_ranges() == ()
    async with running.metadata() as metadata:
        compared = await compare_replicas(metadata, running.tls, 0)
    assert compared.is_sound


async def test_replica_that_cannot_be_read_is_not_proven_equal(running: LocalCluster) -> None:
    everywhere = EqualReplicas(0, frozenset(await replicas_of(running, 0)))
    async with running.metadata() as metadata:
        await prove_equality(metadata, running.tls, everywhere)
        wrong = EqualReplicas(0, everywhere.storages | {"unknown:1"})
        with pytest.raises(NotEqual, match="partition 0 on storage unknown:1 cannot be compared"):
            await prove_equality(metadata, running.tls, wrong)


async def test_commands_move_recover_retire_and_compare(running: LocalCluster) -> None:
    order = await moving(running)
    where = ["--cluster", str(running.layout.description)]

    async def waltz(*arguments: str) -> Result:
        """Run a verb, which has an event loop of its own, beside this one."""
        return await asyncio.to_thread(CliRunner().invoke, app, ["storage", *arguments, *where])

    first = f"would: storage {order.destination} creates a replica"
    async with asyncio.timeout(DONE_WITHIN_S):
        # While a store session begins, the command would wait before its first step.
        while True:
            await running.wait_until_healthy()
            tried = await waltz("move", order.source, order.destination, "0", "--dry-run")
            assert tried.exit_code == 0
            if first in tried.stderr:
                break
    there = await waltz("move", order.source, order.destination, "0", "--delete-files", "--yes")
    assert there.exit_code == 0, there.stderr
    assert "ZooKeeper assigns" in there.stderr
    again = await waltz("move", order.source, order.destination, "0")
    assert "nothing to do" in again.stderr
    back = await waltz("move", order.destination, order.source, "0", "--delete-files", "--yes")
    assert back.exit_code == 0, back.stderr
    well = await waltz("recover", order.source, "0")
    assert "nothing to do" in well.stderr
    refused = await waltz("retire-group", "7", "--yes")
    assert (refused.exit_code, refused.stderr) == (1, "waltz: group 7 has no storages\n")
    compared = await waltz("compare", "0-1", "-o", "json")
    assert compared.exit_code == 0, compared.stderr
    assert [each["first_difference"] for each in json.loads(compared.stdout)] == [None, None]
    assert (await waltz("compare", "9")).exit_code == 1


async def test_impossible_order_is_refused_and_stalled_order_has_reason(
    running: LocalCluster,
) -> None:
    order = await moving(running)
    across = Move(0, order.source, "unknown:1")
    async with operating(running) as operator:
        with pytest.raises(NotPossible, match="unknown:1 is in no group"):
            await carry_out(across, operator)
        await running.stop_one("storage/2")
        with pytest.raises(Stalled, match=f"storage {address(running, 2)} does not answer"):
            await carry_out(order, operator, max_stall_seconds=0.1)
        await running.start_one("storage/2")
        assert order.destination not in await replicas_of(running, 0)
    await running.wait_until_healthy()
