"""Open a client with callbacks. Touches threads and the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from waltz.client import Serializer
from waltz.client.options import ConnectOptions
from waltz.sync import connect as connect_sync
from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.client import MAX_IN_FLIGHT, CallbackClient, check_applies_all

T = TypeVar("T")


@overload
def connect(
    application: Application[T],
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: Serializer[T],
    auto_mount: bool = True,
    **options: Unpack[ConnectOptions],
) -> CallbackClient[T]: ...


@overload
def connect(
    application: Application[bytes],
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: None = None,
    auto_mount: bool = True,
    **options: Unpack[ConnectOptions],
) -> CallbackClient[bytes]: ...


def connect(
    application: Application[Any],
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: Serializer[Any] | None = None,
    auto_mount: bool = True,
    **options: Unpack[ConnectOptions],
) -> CallbackClient[Any]:
    """Open a client with callbacks.

    ``zookeeper`` and ``root`` name the cluster as in `waltz.connect`. ``auto_mount`` is that of
    `CallbackClient`. The other arguments and the errors are those of `waltz.connect`, with three
    differences. Appends have no timeout unless ``append_timeout`` sets one. ``max_in_flight``
    limits both the open appends and the open contexts of each partition. ``unreadable="skip"``
    raises ValueError, because the application must apply every transaction. To set other arguments
    of `CallbackClient`, create it from a client that `waltz.sync.connect` returns.
    """
    check_applies_all(options.get("unreadable", "raise"))  # Before a connection is opened.
    limit = options.setdefault("max_in_flight", MAX_IN_FLIGHT)
    # A context waits until its outcome is known. With the default timeout of the client, it would
    # end by AppendUncertain if the cluster was away for longer than this timeout.
    options.setdefault("append_timeout", None)
    if serializer is None:
        log = connect_sync(zookeeper, root=root, **options)
    else:
        log = connect_sync(zookeeper, root=root, serializer=serializer, **options)
    return CallbackClient(log, application, auto_mount=auto_mount, max_in_flight=limit)
