"""Operations leave no cycles of references: their memory is free without the garbage collector.

A server runs the collector seldom (`waltz.runtime.memory`), and an application may switch it off.
The cluster runs in this process, so the operations of its servers and storages count, too.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest

import waltz
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


@pytest.fixture
def garbage() -> Iterator[Callable[[], list[str]]]:
    """The types of this project among the objects that only the collector can free."""

    def collected() -> list[str]:
        gc.collect()
        types = [type(each) for each in gc.garbage]
        return sorted({each.__qualname__ for each in types if each.__module__.startswith("waltz")})

    gc.collect()
    yield collected
    gc.set_debug(0)
    gc.garbage.clear()


@pytest.mark.parametrize(
    "operation", [append, append_batch, append_refused, read, read_range, read_batches]
)
async def test_operation_leaves_nothing_to_the_garbage_collector(
    operation: Operation, garbage: Callable[[], list[str]]
) -> None:
    async with InProcessCluster(partitions=1, seed=7) as cluster, cluster.connect() as client:
        for _ in range(COUNT):
            await append(client)
        await operation(client)  # The first use opens connections.
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        for _ in range(COUNT):
            await operation(client)
        assert garbage() == []


async def test_data_from_a_server_without_ranges_leave_nothing_to_the_garbage_collector(
    garbage: Callable[[], list[str]],
) -> None:
    """Each read had its data in a cycle. The few objects of the stream itself may stay."""
    old = CLIENT_SERVER.limited_to(*range(RANGES_SINCE))
    async with InProcessCluster(seed=7) as cluster, cluster.connect(spec=old) as client:
        for _ in range(COUNT):
            await append(client)
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        data = [each.data async for each in client.stream(0, until=10, data=True)]
        assert len(data) == 11
        assert "_DataRead" not in garbage()
