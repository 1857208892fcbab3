"""Test that public signatures are declared once, in LogClient, and equal in all clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import assert_type, get_type_hints

import waltz
from waltz import ClientOptions, ConnectOptions, LogClient, LogStream, Transaction
from waltz.sync import SyncBatchStream, SyncClient, SyncStream
from waltz.testing import SyncCluster
from waltz.testing.cluster import InProcessOptions

BLOCKING_METHODS = ("append", "mount", "read", "high_water_mark", "outcome", "flush")


def public_methods(kind: type) -> dict[str, Callable[..., object]]:
    return {
        name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def parameters(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    """Return the name, the kind and the default of each parameter but self."""
    found = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.name != "self"]


def test_client_overrides_no_signature() -> None:
    wanted, found = public_methods(LogClient), public_methods(waltz.Client)
    assert {name: parameters(found[name]) for name in wanted} == {
        name: parameters(method) for name, method in wanted.items()
    }
    assert [name for name in wanted if found[name] is not wanted[name]] == ["close"]


def test_sync_method_has_the_parameters_of_the_coroutine_method() -> None:
    with SyncCluster() as cluster, waltz.sync.opened(cluster.connect()) as sync_client:
        for name in BLOCKING_METHODS:
            method = getattr(sync_client, name)
            assert parameters(method) == parameters(getattr(LogClient, name))
            assert method.__doc__ == getattr(LogClient, name).__doc__


def test_connect_options_are_fields_of_the_client_options() -> None:
    fields = get_type_hints(ClientOptions)
    for options in (ConnectOptions, InProcessOptions):
        given = get_type_hints(options)
        given.pop("tls", None)
        assert {name: fields[name] for name in given} == given


def typed(client: SyncClient[str], asyncio_client: LogClient[str]) -> None:
    """For the type checker, which reports an error here if a type is lost."""
    assert_type(client.append(0, "text", write_locks=[waltz.Lock("a", 1)], timeout=1.0), int)
    assert_type(client.read(0, 1, timeout=None), str)
    assert_type(client.high_water_mark(0), int)
    assert_type(client.mount(0, 3), int)
    assert_type(client.flush(timeout=1.0), None)
    assert_type(client.stream(0, data=True), SyncStream[str])
    assert_type(client.batches(0, after=3), SyncBatchStream)
    assert_type(asyncio_client.stream(0, data=True), LogStream[str])
    client.append(0, b"bytes")  # type: ignore[arg-type]
    client.read(0, 1, seconds=1)  # type: ignore[call-arg]


async def typed_stream(stream: LogStream[str]) -> None:
    """For the type checker."""
    async for transaction in stream:
        assert_type(transaction, Transaction[str])
