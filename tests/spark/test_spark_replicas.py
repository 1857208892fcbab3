"""Records straight from replicas: past servers, and never damaged."""

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
from waltz.spark.core.planning import Slice
from waltz.spark.reading import LogReader, Where

DATA = [str(n).encode() * (1 + n % 3) for n in range(300)]


@pytest.fixture
def reader(cluster: LocalCluster) -> Iterator[LogReader]:
    reader = LogReader(Where(cluster.zookeeper, cluster.root, TlsConfig(enabled=False), 60))
    yield reader
    reader.close()


def from_replicas(reader: LogReader, part: Slice) -> list[bytes]:
    batches = reader.read(part, from_replicas=True)
    return [data for batch in batches for data in batch.column("data").to_pylist()]


@contextmanager
def damaged(segment: Path, data: bytes) -> Iterator[None]:
    """Have another byte where ``data`` is in the file."""
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


def test_no_server_is_needed(
    cluster: LocalCluster, partitions: Iterator[int], reader: LogReader
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


def test_damaged_records_come_from_servers_instead(
    cluster: LocalCluster,
    partitions: Iterator[int],
    reader: LogReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = next(partitions)
    append(cluster, partition, DATA)
    segment = cluster.layout.data("storage/0") / str(partition) / f"{0:019d}.seg"
    # It may be the one of three that was not waited for.
    wait_until(lambda: segment.exists() and DATA[-1] in segment.read_bytes(), 30)
    with damaged(segment, DATA[150]), caplog.at_level(logging.WARNING, "waltz.spark.reading"):
        # Which replica is asked first depends on where a slice ends.
        for last in range(280, 300):
            assert from_replicas(reader, Slice(partition, 3, last)) == DATA[3 : last + 1]
    assert 0 < len(caplog.records) < 20
    assert f"partition {partition}: damaged records" in caplog.messages[0]
