"""Measure how much the moves of many full partitions delay the appends beside them.

Runs as `python -m bench.moves`. A local cluster is filled, and gets one more storage in the group
of its first storage. Then every replica of the first storage moves to the new one, while appends
come at a steady rate. The disk needs room for all copies of all partitions, and for the replicas
that are just being moved. Starts processes, touches the network and the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer
import yaml

import waltz
from bench.cluster import MeasuredCluster, measured_cluster
from bench.followers import percentile_ms
from waltz.admin import Move, OrderExecutor, Registration, carry_out
from waltz.local.child import ChildProcess

ALONE_SECONDS = 60.0
"""How long the appends are measured with no moves beside them."""
_FILL_BYTES = 64 * 1024
"""The size of the records that fill the partitions."""
_RECORD_BYTES = 512
"""The size of the records that are appended while partitions move."""
_START_SECONDS = 60.0
"""How long the new storage may take to start."""
_MEGABYTE = 1_000_000


class SteadyAppends:
    """Appends at a steady rate, to one partition after the other, until the task is cancelled.

    Each append has a *turn*, the time at which it begins. No append waits for earlier ones, so
    that a slow append delays no other.
    """

    def __init__(self, client: waltz.Client, partitions: int, rate: float) -> None:
        self._client = client
        self._partitions = itertools.cycle(range(partitions))
        self._rate = rate
        self._times: list[tuple[float, float]] = []
        """The turn of each append, and the seconds from its turn to its acknowledgement.

        So if this process is busy and begins an append too late, this time counts, too."""

    async def run(self) -> None:
        """Append at the rate. Raises an ExceptionGroup if an append fails."""
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                turn = begun + number / self._rate
                await asyncio.sleep(max(0.0, turn - time.perf_counter()))
                group.create_task(self._append(next(self._partitions), turn))

    async def _append(self, partition: int, turn: float) -> None:
        await self._client.append(partition, b"." * _RECORD_BYTES)
        self._times.append((turn, time.perf_counter() - turn))

    def between(self, first: float, last: float) -> list[float]:
        """Return how many seconds each append took whose turn came between these times."""
        return [seconds for turn, seconds in self._times if first <= turn < last]


@contextlib.asynccontextmanager
async def _empty_storage(cluster: MeasuredCluster) -> AsyncIterator[tuple[str, int]]:
    """Run one more storage; yield its address and the port for administration."""
    layout = cluster.local.layout
    name = "storage/moved"
    settings = yaml.safe_load(layout.config("storage/0").read_text()) | {
        "storage.port": 0,
        "storage.admin.port": 0,
        "storage.jetty.port": 0,
        "storage.directory": str(layout.data(name)),
        "storage.ports.file": str(layout.ports_file(name)),
    }
    layout.data(name).mkdir(parents=True)
    config = layout.config(name)
    config.write_text(yaml.safe_dump(settings))
    child = ChildProcess(name, "waltz-storage", config, layout.ports_file(name), layout.log(name))
    child.start()
    try:
        await child.wait_until_ready(_START_SECONDS)
        ports = _read_ports(layout.ports_file(name))
        yield f"127.0.0.1:{ports['port']}", ports["admin"]
    finally:
        await child.stop()


def _read_ports(file: Path) -> dict[str, int]:
    """Return the ports that a storage has written to ``file``, by their names."""
    ports: dict[str, int] = json.loads(file.read_text())
    return ports


async def _measure(partitions: int, megabytes: int, rate: float, at_once: int, copies: int) -> None:
    """Fill the partitions, move their replicas, and print how long appends took meanwhile."""
    records = partitions * megabytes * _MEGABYTE // _FILL_BYTES
    async with measured_cluster(partitions=partitions, storages=copies) as cluster:
        begun = time.perf_counter()
        await cluster.put_load(clients=2, window=20, size=_FILL_BYTES, records=records, locks=False)
        seconds = time.perf_counter() - begun
        print(f"{partitions} partitions filled with {megabytes} MB each in {seconds:.0f} s")
        # Without this, the kernel would still write the records of the fill while the appends are
        # measured with no moves beside them.
        await asyncio.to_thread(os.sync)
        local = cluster.local
        async with (
            _empty_storage(cluster) as (destination, admin_port),
            local.metadata() as metadata,
            waltz.connect(local.zookeeper, root=local.root) as client,
        ):
            executor = OrderExecutor(metadata, waltz.PLAINTEXT)
            await carry_out(Registration(destination, group=0, admin_port=admin_port), executor)
            appends = SteadyAppends(client, partitions, rate)
            source = local.plan.storages[0].address
            # One iterator for all tasks: each of them takes the next partition.
            waiting = iter(range(partitions))

            async def move_some() -> None:
                for partition in waiting:
                    order = Move(partition, source, destination, delete_files=True)
                    await carry_out(order, executor)

            # An append that fails ends the group, and so the measurement.
            async with asyncio.TaskGroup() as group:
                appending = group.create_task(appends.run())
                await asyncio.sleep(ALONE_SECONDS)
                moves_begun = time.perf_counter()
                await asyncio.gather(*(move_some() for _ in range(at_once)))
                ended = time.perf_counter()
                appending.cancel()
    _report(appends, moves_begun=moves_begun, moves_ended=ended)
    print(f"moved {partitions * megabytes / (ended - moves_begun):.0f} MB/s")


def _report(appends: SteadyAppends, *, moves_begun: float, moves_ended: float) -> None:
    """Print the percentiles of the appends before the moves and beside them."""
    alone = appends.between(moves_begun - ALONE_SECONDS, moves_begun)
    beside = appends.between(moves_begun, moves_ended)
    for percent in (50, 99):
        alone_ms, beside_ms = percentile_ms(alone, percent), percentile_ms(beside, percent)
        print(
            f"p{percent} of appends: {alone_ms:.1f} ms alone, {beside_ms:.1f} ms beside moves of "
            f"{moves_ended - moves_begun:.0f} s, {beside_ms / alone_ms:.2f} times"
        )


def _command(
    partitions: Annotated[int, typer.Option(min=1, help="The number of partitions.")] = 300,
    megabytes: Annotated[int, typer.Option(min=1, help="The size of a partition in MB.")] = 100,
    rate: Annotated[float, typer.Option(min=1, help="Appends per second.")] = 100.0,
    at_once: Annotated[int, typer.Option(min=1, help="Partitions that move at a time.")] = 1,
    copies: Annotated[int, typer.Option(min=1, help="Copies of each partition.")] = 3,
) -> None:
    """Move all partitions of one storage to another one, and measure the appends meanwhile."""
    asyncio.run(_measure(partitions, megabytes, rate, at_once, copies))


if __name__ == "__main__":
    typer.run(_command)
