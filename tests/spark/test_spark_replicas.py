"""Reads from replicas need no server and never return damaged records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.conftest import append, wait_until
from waltz.local import LocalCluster
from waltz.net import TlsConfig
from waltz.spark.core.slices import Slice
from waltz.spark.log_reader import ClusterLocation, SparkLogReader

DATA = [str(n).encode() * (1 + n % 3) for n in range(300)]


@pytest.fixture
def reader(cluster: LocalCluster) -> Iterator[SparkLogReader]:
    reader = SparkLogReader(
        ClusterLocation(cluster.zookeeper, cluster.root, TlsConfig(enabled=False), 60)
    )
    yield reader
    reader.close()


def from_replicas(reader: SparkLogReader, part: Slice) -> list[bytes]:
    batches = reader.read(part, from_replicas=True)
    return [data for batch in batches for data in batch.column("data").to_pylist()]


@contextmanager
def damaged(segment: Path, data: bytes) -> Iterator[None]:
    """Change one byte of ``data`` in the file, and restore it afterwards."""
    at = segment.read_bytes().index(data)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"?")
        file.flush()
        try:
            yield
        finally:
            file.seek(at)
            file.write(data[:1])


def test_replica_read_needs_no_server(
    cluster: LocalCluster, partitions: Iterator[int], reader: SparkLogReader
) -> None:
    partition = next(partitions)
    append(cluster, partition, DATA)
    servers = ("server/0", "server/1")
    for server in servers:
        cluster.kill(server)
    try:
        assert from_replicas(reader, Slice(partition, 7, 290)) == DATA[7:291]
    finally:
        for server in servers:
            asyncio.run(cluster.start_one(server))


@pytest.mark.slow
def test_replica_read_damaged_records_come_from_servers(
    cluster: LocalCluster,
    partitions: Iterator[int],
    reader: SparkLogReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = next(partitions)
    append(cluster, partition, DATA)
    segment = cluster.layout.data("storage/0") / str(partition) / f"{0:019d}.seg"
    # The append waited for two of three replicas; this may be the third.
    wait_until(lambda: segment.exists() and DATA[-1] in segment.read_bytes(), 30)
    with damaged(segment, DATA[150]), caplog.at_level(logging.WARNING, "waltz.spark.log_reader"):
        # The end of a slice decides which replica is read first.
        for last in range(280, 300):
            assert from_replicas(reader, Slice(partition, 3, last)) == DATA[3 : last + 1]
    assert 0 < len(caplog.records) < 20
    assert f"partition {partition}: a replica returned damaged records" in caplog.messages[0]
