"""The connections of Spark's readers: which marks are confirmed, and what follows a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.types import StructType

from waltz.client import ClientAhead, ClusterUnreachable
from waltz.net import PLAINTEXT
from waltz.spark import batch_reader, log_reader
from waltz.spark.batch_reader import WaltzReader, read_slice
from waltz.spark.core.filters import RowFilter
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import parse_options
from waltz.spark.core.payload import PayloadDecoder
from waltz.spark.core.slices import Slice
from waltz.spark.log_reader import ClusterLocation, SparkLogReader

LOCATION = ClusterLocation("zk:2181", "/log", PLAINTEXT, 1)


class Client:
    """A client of a cluster with one partition, which counts its requests for headers.

    A server that has lost the partition reports ``old_mark``; the log ends at ``mark``.
    """

    num_partitions = 1

    def __init__(self, old_mark: int, mark: int) -> None:
        self._old_mark, self._mark = old_mark, mark
        self.bulk = self
        self.requests = 0

    async def high_water_mark(self, partition: int) -> int:
        return self._old_mark

    async def headers(self, partition: int, first: int, *, max_headers: int) -> Any:
        self.requests += 1
        if first > self._mark + 1:
            raise ClientAhead(partition, first - 1, self._mark)
        return SimpleNamespace(headers=(), high_water_mark=self._mark)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("old_mark", "mark", "start", "confirmed", "requests"),
    [
        pytest.param(9, 12, 10, 9, 0, id="nothing new"),
        pytest.param(8, 12, 10, 12, 1, id="old mark one below"),
        pytest.param(2, 12, 10, 12, 1, id="old mark far below"),
        pytest.param(8, 8, 10, 8, 1, id="log became shorter"),
    ],
)
def test_mark_below_the_start_of_a_read_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
    old_mark: int,
    mark: int,
    start: int,
    confirmed: int,
    requests: int,
) -> None:
    """With an old mark, a stream would go back and read transactions twice."""
    client = Client(old_mark, mark)

    async def connect(*_: object, **__: object) -> Client:
        return client

    monkeypatch.setattr(log_reader, "connect", connect)
    reader = SparkLogReader(LOCATION)
    assert reader.confirmed_marks({0: start}) == {0: confirmed}
    assert client.requests == requests
    reader.close()


def test_answers_have_no_time_limit_besides_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default of clients, a mark would be late after 30 s with any timeoutSeconds."""
    passed: dict[str, object] = {}

    async def connect(*_: object, **options: object) -> Client:
        passed.update(options)
        return Client(0, 0)

    monkeypatch.setattr(log_reader, "connect", connect)
    SparkLogReader(LOCATION).close()
    assert passed["answer_timeout"] is None


class ClientOfZooKeeper(Client):
    """A client that reads the key of its cluster once; from then on ZooKeeper does not answer."""

    def __init__(self, answers: int) -> None:
        super().__init__(0, 0)
        self._answers = answers

    async def cluster_key(self) -> UUID:
        if not self._answers:
            await asyncio.Event().wait()
        self._answers -= 1
        return UUID(int=1)


def reader_of_zookeeper(
    monkeypatch: pytest.MonkeyPatch, answers: int, seconds: float
) -> SparkLogReader:
    async def connect(*_: object, **__: object) -> Client:
        return ClientOfZooKeeper(answers)

    monkeypatch.setattr(log_reader, "connect", connect)
    return SparkLogReader(ClusterLocation("zk:2181", "/log", PLAINTEXT, seconds))


def test_cluster_key_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that runs needs no ZooKeeper between its micro-batches."""
    reader = reader_of_zookeeper(monkeypatch, answers=1, seconds=60)
    assert reader.cluster_key() == reader.cluster_key() == UUID(int=1)
    reader.close()


def test_cluster_key_without_an_answer_of_zookeeper_raises_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = reader_of_zookeeper(monkeypatch, answers=0, seconds=0.01)
    with pytest.raises(ClusterUnreachable, match=r"ZooKeeper did not answer within 0.01 s"):
        reader.cluster_key()
    reader.close()


def test_batch_from_positions_of_another_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = reader_of_zookeeper(monkeypatch, answers=1, seconds=60)
    monkeypatch.setattr(batch_reader, "SparkLogReader", lambda location: reader)
    given = f'{{"clusterKey": "{UUID(int=2)}", "0": 3}}'
    options = parse_options({"zookeeper": "zk:2181", "endingPositions": given})
    decoder = PayloadDecoder("binary", options.mode, StructType())
    with pytest.raises(OptionError, match="the option endingPositions belongs to the cluster"):
        WaltzReader(LOCATION, options, decoder).partitions()


class FailingCache:
    """The cache of a worker, whose reader fails at its first range."""

    def __init__(self) -> None:
        self.forgotten: list[ClusterLocation] = []

    def open(self, location: ClusterLocation) -> FailingCache:
        return self

    def read(self, part: Slice, *, from_replicas: bool) -> Iterator[Any]:
        raise ClusterUnreachable("no server answers")
        yield

    def forget(self, location: ClusterLocation) -> None:
        self.forgotten.append(location)


def test_reader_that_failed_in_a_task_is_not_used_by_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = FailingCache()
    monkeypatch.setattr(batch_reader, "READER_CACHE", cache)
    options = parse_options({"zookeeper": "zk:2181"})
    decoder = PayloadDecoder("binary", options.mode, StructType())
    with pytest.raises(ClusterUnreachable):
        list(read_slice(LOCATION, Slice(0, 0, 9), options, decoder, RowFilter()))
    assert cache.forgotten == [LOCATION]
