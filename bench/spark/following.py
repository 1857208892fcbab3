"""Measure the latency from an append to the end of its micro-batch, at a steady rate.

The data of each transaction begins with the time at which it was passed to the client. So the
latency includes the commit, and the planning, reading and computing of the micro-batch. Touches the
network, starts a JVM.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import waltz
from bench.spark.fill import connect_to
from waltz.local import LocalCluster

_TIME = struct.Struct(">d")
"""The beginning of a record: when it was passed to the client, in seconds since the epoch."""
_RECORD_BYTES = 512
_TICK_SECONDS = 0.02
"""The pause between two batches of appends."""
_WARM_UP = 1 / 3
"""The share of the time at the beginning of a run whose latencies are omitted."""


def follow(
    spark: SparkSession, cluster: LocalCluster, checkpoint: Path, *, rate: int, seconds: float
) -> list[float]:
    """Append ``rate`` transactions per second to partition 0; return their latencies in seconds.

    The latencies of the first third of the time are omitted: Spark warms up during that time.
    """
    latencies: list[float] = []
    began = time.time()

    def record_latencies(batch: Any, _batch_id: int) -> None:
        times = batch.selectExpr(f"substring(data, 1, {_TIME.size}) AS at").toArrow()
        now = time.time()
        sent_times = (_TIME.unpack(at)[0] for at in times.column("at").to_pylist())
        latencies.extend(now - at for at in sent_times if at - began > seconds * _WARM_UP)

    reader = spark.readStream.format("waltz").option("cluster", str(cluster.layout.description))
    frame = reader.option("startingPositions", "latest").option("partitions", "0").load()
    writer = frame.writeStream.foreachBatch(record_latencies)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        asyncio.run(_append(cluster, rate=rate, seconds=seconds))
        query.processAllAvailable()
    finally:
        query.stop()
    return latencies


async def _append(cluster: LocalCluster, *, rate: int, seconds: float) -> None:
    """Append ``rate`` transactions per second for ``seconds``, each with the time of its append."""
    filling = os.urandom(_RECORD_BYTES - _TIME.size)
    async with connect_to(cluster) as client, asyncio.TaskGroup() as group:
        began, elapsed, sent = time.monotonic(), 0.0, 0
        while elapsed < seconds:
            # The appends that are due by now and not sent yet.
            missing = int(elapsed * rate) - sent
            if missing:
                drafts = [waltz.Draft(_TIME.pack(time.time()) + filling) for _ in range(missing)]
                group.create_task(client.bulk.append(0, drafts))
                sent += missing
            await asyncio.sleep(_TICK_SECONDS)
            elapsed = time.monotonic() - began
