"""Opens clients, by arguments or as a file says. Touches but that file before it is awaited."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

from waltz.client.client import Client
from waltz.client.core.errors import ClusterUnreachable
from waltz.client.core.values import Serializer
from waltz.client.opening import Opening
from waltz.client.settings import ClientOptions, read_client_settings
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import ConnectFailed, KazooStore
from waltz.net import TlsConfig

T = TypeVar("T")


class Connecting(TypedDict, total=False):
    """The arguments of `connect` beside the cluster and the serializer; see `ClientOptions`."""

    tls: TlsConfig | None
    session_timeout_ms: int
    connect_timeout: float
    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int
    stream_buffer: int


@overload
def connect(
    zookeeper: str, *, root: str, serializer: Serializer[T], **options: Unpack[Connecting]
) -> Opening[Client[T]]: ...


@overload
def connect(
    zookeeper: str, *, root: str, serializer: None = None, **options: Unpack[Connecting]
) -> Opening[Client[bytes]]: ...


def connect(
    zookeeper: str,
    *,
    root: str,
    tls: TlsConfig | None = None,
    serializer: Serializer[Any] | None = None,
    session_timeout_ms: int = 30_000,
    connect_timeout: float = 10.0,
    append_timeout: float | None = None,
    answer_timeout: float | None = None,
    max_in_flight: int = 1000,
    stream_buffer: int = 10_000,
) -> Opening[Client[Any]]:
    """Open a client of the cluster at ``root`` of the ZooKeeper at ``zookeeper``.

    To be awaited, or entered with ``async with``, which closes it::

        import asyncio
        import waltz

        async def main() -> None:
            async with waltz.connect("127.0.0.1:2181", root="/waltz") as client:
                tx = await client.append(0, b"hello")
                async for transaction in client.stream(0, until=tx, data=True):
                    print(transaction.id, transaction.data)

        asyncio.run(main())

    ``tls`` says how connections to servers are secured: by default they are, with any server
    certificate accepted, as in Waltz 0.13.2. The other arguments are explained in
    `ClientOptions`.

    Raises ClusterUnreachable when ZooKeeper does not answer, ClusterNotFound when there is no
    cluster at ``root``, waltz.metadata.core.paths.BadRoot, waltz.net.TlsConfigError.
    """
    options = ClientOptions(
        tls=tls or TlsConfig(),
        serializer=serializer,
        session_timeout_ms=session_timeout_ms,
        connect_timeout_seconds=connect_timeout,
        append_timeout_seconds=append_timeout,
        answer_timeout_seconds=answer_timeout,
        max_in_flight=max_in_flight,
        stream_buffer=stream_buffer,
    )
    return Opening(lambda: _open(zookeeper, root, options))


def connect_as_configured(path: str | Path) -> Opening[Client[bytes]]:
    """Open a client as a configuration file of Waltz 0.13.2 says (spec/behaviour.md section 14).

    An unknown key is an error, one without a meaning here a warning. TLS is set by
    ``client.tls.*`` (PEM files). Raises ConfigError, and what `connect`
    raises.
    """
    zookeeper, root, options = read_client_settings(Path(path))
    return Opening(lambda: _open(zookeeper, root, options))


async def _open(zookeeper: str, root: str, options: ClientOptions) -> Client[Any]:
    options.tls.dialing_context()
    try:
        store = await KazooStore.connect(
            zookeeper,
            options.session_timeout_ms,
            connect_timeout_s=options.connect_timeout_seconds,
        )
    except ConnectFailed as error:
        raise ClusterUnreachable(str(error)) from error
    try:
        return await Client.over(Cluster(store, root), options, owns_store=True)
    except BaseException:
        await store.close()
        raise
