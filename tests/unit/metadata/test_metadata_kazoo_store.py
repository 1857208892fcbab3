"""The store over ZooKeeper, with a kazoo that is played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from tests.support.eventually import eventually
from waltz.metadata.kazoo_security import protection
from waltz.metadata.kazoo_store import _MOST_UNANSWERED, KazooStore
from waltz.metadata.store import Node, SessionState, StoreConnectionLost
from waltz.metadata.zookeeper_access import OPEN_ACCESS

STAT = SimpleNamespace(version=3, cversion=1, ephemeralOwner=0, mtime=5000)


@dataclass(frozen=True)
class Answer:
    """The result of an operation of kazoo, which is known at once."""

    value: Any = None
    exception: Exception | None = None

    def rawlink(self, call: Callable[[Answer], None]) -> None:
        call(self)


class Pending:
    """An operation of kazoo that waits for a connection."""

    def __init__(self) -> None:
        self.calls: list[Callable[[Answer], None]] = []

    def rawlink(self, call: Callable[[Answer], None]) -> None:
        self.calls.append(call)


class Kazoo:
    """Answers the operations in their order, and records them with their watches."""

    def __init__(self, *answers: Answer | Pending) -> None:
        self._answers = list(answers)
        self.operations: list[tuple[str, str, Any]] = []

    def get_async(self, path: str, watch: Any) -> Answer | Pending:
        return self._answer("get", path, watch)

    def exists_async(self, path: str, watch: Any) -> Answer | Pending:
        return self._answer("exists", path, watch)

    def _answer(self, operation: str, path: str, watch: Any) -> Answer | Pending:
        self.operations.append((operation, path, watch))
        return self._answers.pop(0)


def store_of(kazoo: Kazoo) -> KazooStore:
    loop, acls = asyncio.get_running_loop(), protection(OPEN_ACCESS)
    return KazooStore(kazoo, loop, lambda: 0.0, 20.0, OPEN_ACCESS, acls)


async def test_get_returns_a_node_that_is_created_between_its_two_requests() -> None:
    """None would be wrong for ever: the creation was before the watch, which reports no change."""
    kazoo = Kazoo(Answer(exception=NoNodeError()), Answer(STAT), Answer((b"x", STAT)))
    changed = asyncio.Event()
    node = await store_of(kazoo).get("/a", changed.set)
    assert node == Node(b"x", 3, 1, None, 5.0)
    assert [operation for operation, _, _ in kazoo.operations] == ["get", "exists", "get"]
    kazoo.operations[-1][2](object())
    await asyncio.wait_for(changed.wait(), 20)


async def test_get_of_a_missing_node_leaves_a_watch_by_its_second_request() -> None:
    kazoo = Kazoo(Answer(exception=NoNodeError()), Answer(None))
    changed = asyncio.Event()
    assert await store_of(kazoo).get("/a", changed.set) is None
    assert [operation for operation, _, _ in kazoo.operations] == ["get", "exists"]
    kazoo.operations[-1][2](object())
    await asyncio.wait_for(changed.wait(), 20)


async def test_get_of_a_missing_node_without_a_watch_makes_one_request() -> None:
    kazoo = Kazoo(Answer(exception=NoNodeError()))
    assert await store_of(kazoo).get("/a") is None
    assert [operation for operation, _, _ in kazoo.operations] == ["get"]


async def test_operations_without_a_connection_are_refused_when_too_many_wait() -> None:
    """Otherwise kazoo would block the event loop, and a server would answer no client."""
    waiting = Pending()
    store = store_of(Kazoo(*[waiting] * (_MOST_UNANSWERED + 2)))
    store.health.enter(SessionState.SUSPENDED, None)
    tasks = [asyncio.create_task(store.get("/a")) for _ in range(_MOST_UNANSWERED)]
    await eventually(lambda: len(waiting.calls) == _MOST_UNANSWERED)
    with pytest.raises(StoreConnectionLost, match="100 operations wait for it already"):
        await store.get("/a")
    waiting.calls[0](Answer((b"x", STAT)))
    assert await tasks[0] is not None
    tasks[0] = asyncio.create_task(store.get("/a"))
    await eventually(lambda: len(waiting.calls) == _MOST_UNANSWERED + 1)
    # While there is a connection, kazoo passes every operation on, however many there are.
    store.health.enter(SessionState.CONNECTED, 1)
    tasks.append(asyncio.create_task(store.get("/a")))
    await eventually(lambda: len(waiting.calls) == _MOST_UNANSWERED + 2)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
