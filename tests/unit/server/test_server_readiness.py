"""A server is ready when it has joined and all its partitions are open."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz_server.shell.metrics import health, readiness
from waltz_server.shell.node import ServerNode


def partition(number: int, *, is_open: bool = True, healthy: bool = True) -> Any:
    store = SimpleNamespace(healthy=healthy, is_open=is_open, waiting_for=None)
    return SimpleNamespace(core=SimpleNamespace(id=number, store=store))


def server(
    *partitions: Any, has_joined: bool = True, unhealthy_since: float | None = None
) -> ServerNode:
    node = SimpleNamespace(
        config=SimpleNamespace(session_timeout_ms=1_000_000),
        store=SimpleNamespace(health=SimpleNamespace(unhealthy_since=unhealthy_since)),
        partitions=lambda: list(partitions),
        has_joined=has_joined,
    )
    return cast(ServerNode, node)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (server(), True),
        (server(partition(0), partition(1)), True),
        (server(has_joined=False), False),
        (server(partition(0), partition(1, is_open=False)), False),
        (server(partition(0, healthy=False)), False),
    ],
)
def test_server_is_ready_only_if_it_has_joined_and_its_partitions_are_open(
    node: ServerNode, expected: bool
) -> None:
    assert readiness(node)[0] is expected


def test_partition_that_is_not_open_is_named_and_does_not_make_a_server_unhealthy() -> None:
    node = server(partition(2, is_open=False), partition(1, is_open=False), partition(0))
    assert readiness(node)[1]["partitions-not-open"] == [1, 2]
    assert health(node)[0]


@pytest.mark.parametrize(("seconds", "expected"), [(1_900, True), (2_100, False)])
def test_server_without_zookeeper_is_unhealthy_after_two_session_timeouts(
    seconds: int, expected: bool
) -> None:
    healthy, report = health(server(unhealthy_since=time.monotonic() - seconds))
    assert (healthy, report["server-health-check"]["zookeeper"]) == (expected, expected)
