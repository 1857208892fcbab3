"""What an open client reads from ZooKeeper: the key of its cluster, and the ids of its streams."""

from __future__ import annotations

import pytest

import waltz
from tests.support.client_cluster import ClientCluster
from tests.support.virtual_time import on_virtual_time
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.store import ANY_VERSION, StoreUnavailable
from waltz.net import PLAINTEXT
from waltz.testing.nodes import ROOT


class RefusingCluster(Cluster):
    """Metadata whose key cannot be read, with ``problems`` one after the other."""

    problems: tuple[Exception, ...] = ()

    async def store_params(self) -> StoreParams:
        if self.problems:
            problem, *others = self.problems
            self.problems = tuple(others)
            raise problem
        return await super().store_params()


async def opened(cluster: ClientCluster, *problems: Exception) -> waltz.Client[bytes]:
    metadata = RefusingCluster(cluster.zookeeper.connect(), ROOT)
    metadata.problems = problems
    options, network = waltz.ClientOptions(tls=PLAINTEXT), cluster.network.host("client")
    return await waltz.Client.over(metadata, options, network=network)


@on_virtual_time
async def test_cluster_key_is_read_when_zookeeper_answers_again() -> None:
    async with ClientCluster() as cluster:
        client = await opened(cluster, StoreUnavailable("the connection to ZooKeeper was lost"))
        wanted = (await Cluster(cluster.zookeeper.connect(), ROOT).store_params()).key
        assert await client.cluster_key() == wanted
        await client.close()
        with pytest.raises(waltz.ClientClosed):
            await client.cluster_key()


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (NoCluster(ROOT), waltz.ClusterNotFound),
        (MalformedMetadata("StoreParams", "too short"), waltz.ClusterUnreachable),
    ],
)
@on_virtual_time
async def test_cluster_key_that_cannot_be_read_raises_error_of_the_client(
    problem: Exception, error: type[waltz.WaltzError]
) -> None:
    async with ClientCluster() as cluster:
        client = await opened(cluster, problem)
        with pytest.raises(error):
            await client.cluster_key()
        await client.close()


@pytest.mark.parametrize("counter", [b"malformed", None])
@on_virtual_time
async def test_stream_without_a_usable_counter_of_ids_raises_cluster_unreachable(
    counter: bytes | None,
) -> None:
    async with ClientCluster() as cluster:
        client = await opened(cluster)
        store = cluster.zookeeper.connect()
        path = Cluster(store, ROOT).paths.client_id
        if counter is None:
            await store.delete(path)
        else:
            await store.set(path, counter, ANY_VERSION)
        with pytest.raises(waltz.ClusterUnreachable, match=f"no client id for a stream: .*{path}"):
            await anext(aiter(client.stream(0)))
        await client.close()
        await store.close()
