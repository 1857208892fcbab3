"""Operations leave no cycles of references: their memory is free without the garbage collector.

A server runs the collector seldom (`waltz.runtime.memory`), and an application may switch it off.
The cluster runs in this process, so the operations of its servers and storages count, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import waltz
from tests.support.garbage import kept_garbage
from waltz.protocol import CLIENT_SERVER
from waltz.protocol.client_numbers import RANGES_SINCE
from waltz.testing import InProcessCluster

COUNT = 20

Operation = Callable[[waltz.Client], Awaitable[object]]


async def append(client: waltz.Client) -> None:
    await client.append(0, b"data", write_locks=[waltz.Lock("a", 1)])


async def append_batch(client: waltz.Client) -> None:
    await client.bulk.append(0, [waltz.Draft(b"data") for _ in range(5)])


async def append_refused(client: waltz.Client) -> None:
    with pytest.raises(waltz.LockFailed):
        await client.append(0, b"data", mark=0, write_locks=[waltz.Lock("a", 1)])


async def read(client: waltz.Client) -> None:
    await client.read(0, 3)


async def read_range(client: waltz.Client) -> None:
    await client.bulk.records(0, 3)


async def read_batches(client: waltz.Client) -> None:
    assert [batch async for batch in client.batches(0, until=10)]


def own_types(garbage: list[object]) -> set[str]:
    """Return the names of this project's types among the objects."""
    types = {type(each) for each in garbage}
    return {each.__qualname__ for each in types if each.__module__.startswith("waltz")}


@pytest.mark.parametrize(
    "operation", [append, append_batch, append_refused, read, read_range, read_batches]
)
async def test_operation_leaves_nothing_to_the_garbage_collector(
    operation: Operation,
) -> None:
    async with InProcessCluster(partitions=1, seed=7) as cluster, cluster.connect() as client:
        for _ in range(COUNT):
            await append(client)
        await operation(client)  # The first use opens connections.
        with kept_garbage() as garbage:
            for _ in range(COUNT):
                await operation(client)
        assert own_types(garbage) == set()


async def test_data_from_a_server_without_ranges_leave_nothing_to_the_garbage_collector() -> None:
    """Each read had its data in a cycle. The few objects of the stream itself may stay."""
    old = CLIENT_SERVER.limited_to(*range(RANGES_SINCE))
    async with InProcessCluster(seed=7) as cluster, cluster.connect(spec=old) as client:
        for _ in range(COUNT):
            await append(client)
        with kept_garbage() as garbage:
            data = [each.data async for each in client.stream(0, until=10, data=True)]
            assert len(data) == 11
        assert "_DataRead" not in own_types(garbage)
