"""Open clients by arguments or by a configuration file. Touches the network and ZooKeeper."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from waltz.client.client import Client
from waltz.client.core.arguments import shown
from waltz.client.core.errors import ClusterUnreachable, no_answer_of_zookeeper
from waltz.client.core.values import Serializer
from waltz.client.location import find_cluster
from waltz.client.opening import Opening
from waltz.client.options import ClientOptions, ConnectOptions, client_options
from waltz.client.outside import reachable_from_outside
from waltz.client.tls_check import check_tls, with_tls_of_cluster
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.paths import Paths
from waltz.metadata.store import StoreError
from waltz.metadata.zookeeper_access import BadCredentials
from waltz.net import join_address, split_address
from waltz.runtime.extras import needs_extra

T = TypeVar("T")


@overload
def connect(
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: Serializer[T],
    **options: Unpack[ConnectOptions],
) -> Opening[Client[T]]: ...


@overload
def connect(
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: None = None,
    **options: Unpack[ConnectOptions],
) -> Opening[Client[bytes]]: ...


def connect(
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: Serializer[Any] | None = None,
    **options: Unpack[ConnectOptions],
) -> Opening[Client[Any]]:
    """Open a client of a cluster.

    Without arguments, the environment names the cluster, as for the command line, by one of these:

    * ``WALTZ_CLUSTER``: the path of a ``cluster.json``
    * ``WALTZ_ZOOKEEPER`` and ``WALTZ_ROOT``
    * ``WALTZ_PROFILE``: a profile of ``waltz profile``

    ``WALTZ_TLS`` is ``on``, ``off`` or a file; ``WALTZ_ACCESS`` is ``inside`` or ``outside``. If
    the environment names no cluster, the client connects to the local cluster in
    ``waltz-local/cluster.json``, or, if there is none, to that of the profile in use.

    If none of these says whether to use TLS, the client does what the servers have declared in
    ZooKeeper. If they have declared nothing, it uses TLS.

    Await the result to get the client, or enter it with ``async with``, which closes the client at
    the end:

        import asyncio
        import waltz

        async def main() -> None:
            async with waltz.connect("127.0.0.1:2181", root="/waltz") as client:
                tx = await client.append(0, b"hello")
                async for transaction in client.stream(0, until=tx, data=True):
                    print(transaction.id, transaction.data)

        asyncio.run(main())

    Args:
        zookeeper: The addresses of ZooKeeper, such as ``"zk-0:2181,zk-1:2181"``, or the path of a
            ``cluster.json``. With this argument the environment is not read.
        root: The path of the cluster in ZooKeeper. Default: ``/waltz``, or that of the file.
        serializer: Converts the application's values to bytes and back. None: data are bytes.
        options: Options of the client. `ClientOptions` has their meaning and defaults.

    A wrong type or value of an argument raises TypeError or ValueError at once. The client is
    opened, and these errors are raised, when the result is awaited or entered.

    Raises:
        ClusterUnreachable: ZooKeeper does not answer, or the credentials for ZooKeeper cannot be
            read. The servers use TLS and the client does not, or the other way round. A server
            requires a certificate and the client has none. ``tls`` is not given, and what the
            servers have declared in ZooKeeper cannot be decoded. ``access`` is ``"outside"``, and
            no server has an outside address.
        ClusterNotFound: No cluster is named, the file cannot be read, or there is no cluster at
            ``root``.
        waltz.metadata.core.paths.BadRoot: ``root`` is not a valid path.
        waltz.net.TlsConfigError: A certificate or key file cannot be used.
        waltz.runtime.configuration.ConfigError: The file of TLS settings that ``WALTZ_TLS`` or the
            profile names cannot be used.
    """
    _check_place(zookeeper, root)
    all_options = client_options(serializer, options)
    return Opening(lambda: _open_at(zookeeper, root, all_options))


def connect_as_configured(path: str | Path) -> Opening[Client[bytes]]:
    """Open a client by a configuration file of Waltz 0.13.2 (spec/behaviour.md section 14).

    An unknown key is an error. A key of Waltz 0.13.2 without effect here causes a warning. The keys
    ``client.tls.*`` configure TLS, with PEM files. Raises ConfigError; opening the client raises
    the errors of `connect`. Needs ``waltz-log[config]``.
    """
    # The import is here, because pydantic takes longer to import than the whole client.
    with needs_extra("connect_as_configured", "config"):
        from waltz.client.settings import read_client_settings

    zookeeper, root, options = read_client_settings(Path(path))
    return Opening(lambda: _open(zookeeper, root, options))


def _check_place(zookeeper: object, root: object) -> None:
    """Raise TypeError if the arguments of `connect` cannot name a cluster."""
    if not isinstance(zookeeper, str | Path | None):
        raise TypeError(
            f"zookeeper is {shown(zookeeper)}: it must be a text such as 'zk-0:2181,zk-1:2181', or "
            "the path of a cluster.json"
        )
    if not isinstance(root, str | None):
        raise TypeError(f"root is {shown(root)}: it must be a text such as '/waltz'")


async def _open_at(
    place: str | Path | None, root: str | None, options: ClientOptions
) -> Client[Any]:
    """Find the cluster and open a client of it. `find_cluster` explains the arguments.

    ``options.tls`` and ``options.access`` override what `find_cluster` finds.
    """
    location = find_cluster(place, root, options.tls, access=options.access)
    options = replace(options, tls=location.tls, access=location.access)
    return await _open(location.zookeeper, location.root, options)


async def _open(zookeeper: str, root: str, options: ClientOptions) -> Client[Any]:
    """Connect to ZooKeeper, open a client, and check that it can connect to the servers."""
    # This import is here, so that an import of the library does not import kazoo.
    from waltz.metadata.kazoo_store import ConnectFailed, KazooStore

    Paths(root)  # Raises BadRoot before there is a session that would have to be closed.
    # Raises TlsConfigError if a TLS file cannot be used. The connections to servers, which are
    # opened in the background, could only log it.
    if options.tls is not None:
        options.tls.dialing_context()
    try:
        store = await KazooStore.connect(
            zookeeper,
            options.session_timeout_ms,
            options.zookeeper_access,
            connect_timeout_s=options.connect_timeout,
        )
    except (BadCredentials, ConnectFailed) as error:
        raise ClusterUnreachable(str(error)) from None
    cluster = Cluster(store, root)
    try:
        # `Client.over` would do the same, but `_check_servers` needs these TLS settings, too.
        options = await _with_tls(cluster, options)
        client = await Client.over(cluster, options, owns_store=True)
    except BaseException:
        await store.close()
        raise
    try:
        await _check_servers(cluster, options)
    except BaseException:
        await client.close()
        raise
    return client


async def _with_tls(cluster: Cluster, options: ClientOptions) -> ClientOptions:
    """Return the options with the TLS settings to use. Raises ClusterUnreachable."""
    try:
        async with asyncio.timeout(options.connect_timeout):
            return await with_tls_of_cluster(cluster, options)
    except TimeoutError:
        raise no_answer_of_zookeeper(options.connect_timeout) from None


async def _check_servers(cluster: Cluster, options: ClientOptions) -> None:
    """Raise ClusterUnreachable if client and servers do not agree about TLS.

    With the access ``outside``, also raise this error if servers are registered and none of them
    has an outside address.
    """
    assert options.tls is not None
    try:
        async with asyncio.timeout(options.connect_timeout):
            servers = (await cluster.membership()).servers().values()
    except (MalformedMetadata, NoCluster, StoreError, TimeoutError):
        return  # The client is open, and reports each of these errors when it needs a server.
    if options.access != "outside":
        await check_tls([(server.host, server.port) for server in servers], options.tls)
    elif servers:
        outside = await reachable_from_outside(cluster, options.connect_timeout)
        # The registered address of each outside address, for the text of an error.
        registered = {split_address(address): inside for inside, address in outside.items()}
        await check_tls(
            registered,
            options.tls,
            name=lambda host, port: (
                f"{join_address(host, port)} (outside address of {registered[host, port]})"
            ),
        )
