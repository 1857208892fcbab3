"""The faults of the ZooKeeper in memory; tests/integration/test_metadata_store.py has the rest."""

from __future__ import annotations

import asyncio

import pytest

from waltz.metadata.retry import compare_and_set
from waltz.metadata.store import OperationTimedOut, SessionState, StoreClosed, StoreConnectionLost
from waltz.testing import MemoryStore, MemoryZooKeeper, run


async def opened(zookeeper: MemoryZooKeeper) -> tuple[MemoryStore, MemoryStore]:
    """Return two sessions; the node /n has the data "old" at version 0."""
    one, two = zookeeper.connect(), zookeeper.connect()
    await one.create("/n", b"old")
    return one, two


async def data_of(store: MemoryStore) -> bytes | None:
    node = await store.get("/n")
    assert node is not None
    return node.data


@pytest.mark.parametrize("executed", [True, False])
async def test_lost_write_is_executed_or_not_and_compare_and_set_finds_out(executed: bool) -> None:
    one, two = await opened(MemoryZooKeeper())
    one.lose_next_write(executed=executed)
    with pytest.raises(StoreConnectionLost):
        await one.set("/n", b"new", 0)
    assert await data_of(two) == (b"new" if executed else b"old")
    one.lose_next_write(executed=executed)
    assert await compare_and_set(one, "/n", b"newer", int(executed)) == 1 + executed


@pytest.mark.parametrize("executed", [True, False])
async def test_lost_write_leaves_reads_alone(executed: bool) -> None:
    one, two = await opened(MemoryZooKeeper())
    one.lose_next_write(executed=executed)
    assert await data_of(one) == b"old"
    with pytest.raises(StoreConnectionLost):
        await one.delete("/n")
    assert (await two.get("/n") is None) == executed


async def test_lagging_session_reads_old_data_and_gets_its_watches_later() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await opened(zookeeper)
    changed = asyncio.Event()
    zookeeper.lag(one)
    await two.set("/n", b"new", 0)
    assert (await one.get("/n", changed.set)) is not None
    assert await data_of(one) == b"old"
    await asyncio.sleep(0)
    assert not changed.is_set()
    zookeeper.catch_up(one)
    await changed.wait()
    assert await data_of(one) == b"new"


async def test_write_brings_a_lagging_session_up_to_date() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await opened(zookeeper)
    zookeeper.lag(one)
    await two.set("/n", b"new", 0)
    await one.create("/m", None)
    assert await data_of(one) == b"new"


def test_late_watch_is_called_after_the_delay() -> None:
    async def work() -> float:
        zookeeper = MemoryZooKeeper()
        zookeeper.watch_delay = 5.0
        one, two = await opened(zookeeper)
        changed = asyncio.Event()
        await one.get("/n", changed.set)
        await two.set("/n", b"new", 0)
        await changed.wait()
        return asyncio.get_running_loop().time()

    assert run(work()) == pytest.approx(5.0)


def test_operation_without_an_answer_times_out_or_is_answered_later() -> None:
    async def work() -> None:
        zookeeper = MemoryZooKeeper()
        one, two = await opened(zookeeper)
        one.operation_timeout, two.operation_timeout = 5.0, 60.0
        zookeeper.stop_answering()
        waiting = asyncio.ensure_future(data_of(two))
        with pytest.raises(OperationTimedOut, match="about /n within 5 s"):
            await one.set("/n", b"new", 0)
        assert not waiting.done()
        zookeeper.resume_answering()
        assert await waiting == b"old"

    run(work())


async def test_expired_session_loses_its_nodes_and_learns_of_it() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await opened(zookeeper)
    await one.create("/e", None, ephemeral=True)
    before = one.health.session_id
    zookeeper.expire(one)
    assert await two.get("/e") is None
    assert one.health.state is SessionState.LOST
    zookeeper.resume(one)
    assert one.health.session_id != before
    assert await one.get("/n") is not None


@pytest.mark.parametrize("expire", [True, False])
async def test_abandoned_session_keeps_its_nodes_until_it_expires(expire: bool) -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await opened(zookeeper)
    await one.create("/e", b"", ephemeral=True)
    changed = asyncio.Event()
    await one.get("/n", changed.set)
    zookeeper.abandon(one, expire=expire)
    await two.set("/n", b"new", 0)
    await asyncio.sleep(0)
    assert not changed.is_set()
    assert one.health.state is SessionState.CLOSED
    with pytest.raises(StoreClosed):
        await one.get("/n")
    assert (await two.get("/e") is None) == expire


async def test_end_of_an_abandoned_session_deletes_its_ephemeral_nodes() -> None:
    zookeeper = MemoryZooKeeper()
    one, two = await opened(zookeeper)
    await one.create("/e", b"", ephemeral=True)
    session_id = one.health.session_id
    assert session_id is not None
    zookeeper.abandon(one, expire=False)
    assert await two.get("/e") is not None
    zookeeper.end_session(session_id)
    assert await two.get("/e") is None


async def test_session_on_another_event_loop_gets_its_watches_there() -> None:
    zookeeper = MemoryZooKeeper()
    one, _ = await opened(zookeeper)
    watching = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def watch() -> SessionState:
        store = zookeeper.connect()
        changed, lost = asyncio.Event(), asyncio.Event()
        store.health.on_change(lambda state: lost.set())
        await store.get("/n", changed.set)
        loop.call_soon_threadsafe(watching.set)
        await changed.wait()
        await lost.wait()
        return store.health.state

    elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, watch()))
    await watching.wait()
    await one.set("/n", b"new", 0)
    zookeeper.suspend(zookeeper._clients[-1])
    assert await elsewhere is SessionState.SUSPENDED


async def test_cleared_tree_has_no_node() -> None:
    zookeeper = MemoryZooKeeper()
    one, _ = await opened(zookeeper)
    await one.create("/n/m", None)
    zookeeper.clear()
    assert zookeeper.dump() == {}
