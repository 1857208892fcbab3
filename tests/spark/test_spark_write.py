"""The sink: what is written, what is refused, and that each row comes once whatever dies."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import waltz
from tests.spark.conftest import append, contents, end_of
from waltz.local import LocalCluster
from waltz.net import TlsConfig
from waltz.spark.appending import Attempt, WriterSession, WriteTask
from waltz.spark.ledger import Superseded, WriteIsOver
from waltz.spark.reading import Where
from waltz.spark.rows import Columns, partition_of


def save(frame: Any, cluster: LocalCluster, **options: object) -> None:
    writer = frame.write.format("waltz").mode("append")
    writer = writer.option("cluster", str(cluster.layout.description))
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def written(cluster: LocalCluster, partition: int) -> list[waltz.Transaction]:
    return contents(cluster, {partition: end_of(cluster, partition)})


def test_columns_become_transactions(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    frame = spark.range(100).selectExpr(
        f"{partition} AS partition",
        "to_json(struct(id)) AS data",
        "CAST(id AS INT) AS header",
        "array(named_struct('name', 'row', 'id', id)) AS locks",
    )
    save(frame.coalesce(1), cluster)
    found = written(cluster, partition)
    assert [t.header for t in found] == list(range(100))
    assert [json.loads(t.data) for t in found] == [{"id": i} for i in range(100)]


def test_a_batch_without_a_name_leaves_no_ledger(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    partition = next(partitions)
    rows = spark.range(3).selectExpr(f"{partition} AS partition", "CAST(id AS STRING) AS data")
    save(rows, cluster)
    save(rows, cluster, writeId=f"named {partition}")

    async def ledgers() -> tuple[str, ...]:
        async with cluster.metadata() as metadata:
            return (await metadata.store.children(f"{cluster.root}/spark")).names

    names = asyncio.run(ledgers())
    assert f"named%20{partition}" in names
    assert not [name for name in names if name.startswith("batch-")]


def test_keys_choose_partitions(spark: Any, cluster: LocalCluster) -> None:
    """Text and its bytes are the same key."""
    partition = partition_of(b"a key", 200)
    save(spark.sql("SELECT 'a key' AS key, 'one' AS data"), cluster)
    save(spark.sql("SELECT CAST('a key' AS BINARY) AS key, 'two' AS data"), cluster)
    assert [t.data for t in written(cluster, partition)][-2:] == [b"one", b"two"]


def test_a_write_that_is_repeated(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """Rows that are equal are counted, not thrown away."""
    partition = next(partitions)
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        f"{partition} AS partition", "CAST(id % 700 AS STRING) AS data"
    )
    write_id = f"repeated {partition}/"
    save(frame.where("data < '5'"), cluster, writeId=write_id)
    assert 0 < len(written(cluster, partition)) < 3000
    for _ in range(2):
        save(frame, cluster, writeId=write_id)
    found = Counter(int(t.data) for t in written(cluster, partition))
    assert found == Counter(i % 700 for i in range(3000))


def test_ids_do_not_depend_on_tasks(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int]
) -> None:
    """The second time, other tasks have the rows."""
    partition = next(partitions)
    frame = spark.range(500).selectExpr(
        f"{partition} AS partition", "id", "CAST(id AS STRING) AS data"
    )
    write_id = f"ids {partition}"
    save(frame.where("id % 3 = 0").repartition(4), cluster, writeId=write_id)
    save(frame.repartition(2), cluster, writeId=write_id)
    save(frame.repartition(3), cluster, writeId=write_id)
    found = [int(t.data) for t in written(cluster, partition)]
    assert sorted(found) == list(range(500))


def test_from_log_to_log(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], tmp_path: Path
) -> None:
    source, sink = next(partitions), next(partitions)
    file = str(cluster.layout.description)
    frame = (
        spark.readStream.format("waltz")
        .option("cluster", file)
        .option("partitions", source)
        .option("maxRowsPerTrigger", 700)
        .load()
        .selectExpr(f"{sink} AS partition", "header", "data")
    )
    for count in (1500, 10):
        append(cluster, source, [str(i).encode() for i in range(count)])
        query = (
            frame.writeStream.format("waltz")
            .option("cluster", file)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
    found = written(cluster, sink)
    expected = [*range(1500), *range(10)]
    assert [int(t.data) for t in found] == expected
    assert [t.header for t in found] == expected


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["id"], "needs a column data"),
        (["id AS data"], "the column data is BIGINT"),
        (["'x' AS data", "1 AS extra"], "has no column extra"),
        (["'x' AS data", "1 AS partition", "'k' AS key"], "drop one of the two"),
        (["'x' AS data", "array(1L) AS locks"], "ARRAY<STRUCT<name: STRING, id: BIGINT>>"),
    ],
)
def test_frames_that_are_refused(
    spark: Any, cluster: LocalCluster, columns: list[str], text: str
) -> None:
    with pytest.raises(AnalysisException, match=text):
        save(spark.range(1).selectExpr(*columns), cluster)


def test_a_log_is_not_overwritten(spark: Any, cluster: LocalCluster) -> None:
    writer = spark.sql("SELECT 'x' AS data").write.format("waltz").mode("overwrite")
    with pytest.raises(AnalysisException, match="only appended to"):
        writer.option("cluster", str(cluster.layout.description)).save()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"root": "/other"}, "there is no Waltz cluster at /other"),
        ({"zookeeper": "127.0.0.1:1", "timeoutSeconds": 1}, r"127\.0\.0\.1:1"),
    ],
)
def test_clusters_that_are_not_there(
    spark: Any, cluster: LocalCluster, options: dict[str, Any], text: str
) -> None:
    writer = spark.sql("SELECT 'x' AS data").write.format("waltz").mode("append")
    for name, value in ({"zookeeper": cluster.zookeeper} | options).items():
        writer = writer.option(name, value)
    with pytest.raises(AnalysisException, match=text):
        writer.save()


def test_rows_that_are_refused(spark: Any, cluster: LocalCluster) -> None:
    with pytest.raises(PySparkException, match="null in data"):
        save(spark.sql("SELECT CAST(NULL AS STRING) AS data"), cluster)
    with pytest.raises(PySparkException, match="only partitions 0 to 199"):
        save(spark.sql("SELECT 'x' AS data, 200 AS partition"), cluster)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("stable", [False, True])
def test_tasks_killed_anywhere(
    spark: Any, cluster: LocalCluster, partitions: Iterator[int], seed: int, stable: bool
) -> None:
    """After a shuffle; each of 4 tasks dies up to 3 times, in the middle or after its last row."""
    partition = next(partitions)
    frame = spark.range(3000).selectExpr(
        f"{partition} AS partition",
        "CAST(id AS STRING) AS data",
        *(["id"] if stable else []),
    )
    spark.dataSource.register(mortal_source(seed))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        writer = frame.repartition(4).write.format("mortal").mode("append")
        writer.option("cluster", str(cluster.layout.description)).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = [int(t.data) for t in written(cluster, partition)]
    assert sorted(found) == list(range(3000))


def mortal_source(seed: int) -> type:
    """Return a source whose tasks' processes die, as often as Spark bears, at points by chance."""
    import os
    import random

    from pyspark import TaskContext

    import waltz.spark.appending
    from waltz.spark.rows import columns_of
    from waltz.spark.sink import WaltzWriter
    from waltz.spark.source import WaltzDataSource
    from waltz.spark.where import locate
    from waltz.spark.write_options import parse_write_options

    class MortalWriter(WaltzWriter):
        def write(self, iterator: Any) -> Any:
            waltz.spark.appending._BATCH_ROWS = 150
            context = TaskContext.get()
            chance = random.Random(f"{seed} {context.partitionId()} {context.attemptNumber()}")
            last = chance.randrange(10) if context.attemptNumber() < 3 else -1

            def dying() -> Any:
                for number, batch in enumerate(iterator):
                    if number == last:
                        os._exit(1)
                    yield batch

            message = super().write(dying())
            if last >= 0:
                os._exit(1)
            return message

    class MortalSource(WaltzDataSource):
        @classmethod
        def name(cls) -> str:
            return "mortal"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            options = parse_write_options(self.options)
            return MortalWriter(locate(options.cluster), options, columns_of(schema))

    return MortalSource


class Attempts:
    """Attempts at one task in this process, which may be left lying in the middle."""

    def __init__(self, cluster: LocalCluster, partition: int, *, stable: bool) -> None:
        self.where = Where(cluster.zookeeper, cluster.root, TlsConfig(enabled=False), 30)
        names = ("partition", "data", "id") if stable else ("partition", "data")
        self.columns = Columns(names)
        self.task = WriteTask(f"attempts {partition}", True, 0, "run", 0)
        self.partition = partition
        self.sessions: list[WriterSession] = []

    def begin(self, **task: Any) -> Attempt:
        session = WriterSession(self.where)
        self.sessions.append(session)
        return Attempt(session, replace(self.task, **task), self.columns).__enter__()

    def batch(self, numbers: Iterable[int]) -> Any:
        rows = [{"partition": self.partition, "data": str(n), "id": n} for n in numbers]
        schema = pa.schema([("partition", pa.int32()), ("data", pa.string()), ("id", pa.int64())])
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    def close(self) -> None:
        for session in self.sessions:
            session.close()


@pytest.fixture(params=[False, True], ids=["tasks", "ids"])
def attempts(
    cluster: LocalCluster, partitions: Iterator[int], request: pytest.FixtureRequest
) -> Iterator[Attempts]:
    made = Attempts(cluster, next(partitions), stable=request.param)
    yield made
    made.close()


def test_a_zombie_and_its_successor_work_together(
    cluster: LocalCluster, attempts: Attempts
) -> None:
    zombie, successor = attempts.begin(), attempts.begin()
    for attempt, numbers in [
        (zombie, range(10)),
        (successor, range(20)),
        (zombie, range(10, 30)),
        (successor, range(20, 40)),
        (zombie, range(30, 50)),
        (successor, range(40, 50)),
    ]:
        attempt.add(attempts.batch(numbers))
        attempt.flush()
    found = [int(t.data) for t in written(cluster, attempts.partition)]
    assert found == list(range(50))
    assert zombie.written.appended + successor.written.appended == 50


def test_a_zombie_of_an_epoch_that_is_over(cluster: LocalCluster, attempts: Attempts) -> None:
    zombie, successor, next_epoch = attempts.begin(), attempts.begin(), attempts.begin(epoch=1)
    zombie.add(attempts.batch(range(10)))
    zombie.flush()
    for attempt, numbers in ((successor, range(20)), (next_epoch, range(20, 30))):
        attempt.add(attempts.batch(numbers))
        attempt.flush()
    zombie.add(attempts.batch(range(10, 20)))
    with pytest.raises(Superseded):
        zombie.flush()
    found = [int(t.data) for t in written(cluster, attempts.partition)]
    assert found == list(range(30))


def test_a_zombie_of_a_batch_that_is_over(attempts: Attempts) -> None:
    zombie = attempts.begin(lasting=False)
    zombie.add(attempts.batch(range(10)))
    with pytest.raises(WriteIsOver):
        zombie.flush()


def test_others_may_write_in_between(cluster: LocalCluster, attempts: Attempts) -> None:
    attempt = attempts.begin()
    for first in (0, 10):
        attempt.add(attempts.batch(range(first, first + 10)))
        attempt.flush()
        append(cluster, attempts.partition, [b"3", b"13"])
    again = attempts.begin()
    again.add(attempts.batch(range(30)))
    again.flush()
    assert again.written.appended == 10
    found = Counter(int(t.data) for t in written(cluster, attempts.partition))
    assert found == Counter(range(30)) + Counter([3, 13, 3, 13])


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_attempts(cluster: LocalCluster, attempts: Attempts, seed: int) -> None:
    """Attempts are left lying and go on later, as chance has it; in the end one of each finishes.

    With ids there are two runs, which cut the rows into tasks in different ways.
    """
    chance = random.Random(seed)
    rows = range(120)
    cuts: dict[tuple[str, int], list[int]] = {("run", 0): [n % 70 for n in rows]}
    if attempts.columns.stable:
        cuts = {("a", task): [n for n in rows if n % 2 == task] for task in range(2)}
        cuts |= {("b", task): [n for n in rows if n // 60 == task] for task in range(2)}
    going: list[tuple[Attempt, list[int]]] = []

    def begin(run: str, task: int) -> None:
        left = list(cuts[run, task])
        chance.shuffle(left)
        going.append((attempts.begin(run=run, task=task), left))

    def go_on(attempt: Attempt, left: list[int], count: int) -> None:
        attempt.add(attempts.batch(left[:count]))
        attempt.flush()
        del left[:count]

    for _ in range(2):
        for cut in cuts:
            begin(*cut)
    for _ in range(20):
        go_on(*chance.choice(going), chance.randint(1, 40))
    last_run = chance.choice(sorted({run for run, _ in cuts}))
    for run, task in cuts:
        if run == last_run:
            begin(run, task)
            go_on(*going[-1], len(rows))
    for attempt, left in going:
        go_on(attempt, left, len(rows))
    found = Counter(int(t.data) for t in written(cluster, attempts.partition))
    expected = rows if attempts.columns.stable else cuts["run", 0]
    assert found == Counter(expected)
