"""Test that failed, slow and abandoned attempts append each row once. Without Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.conftest import append, written
from waltz.local import LocalCluster
from waltz.net import TlsConfig
from waltz.spark.core.ledger import EpochIsOver, WriteIsOver
from waltz.spark.core.rows import Columns
from waltz.spark.log_reader import ClusterLocation
from waltz.spark.writer import TaskAttempt, WriterSession, WriteTask


class Attempts:
    """Attempts at one task in this process; a test may leave them unfinished."""

    def __init__(self, cluster: LocalCluster, partition: int, *, has_row_ids: bool) -> None:
        self.where = ClusterLocation(cluster.zookeeper, cluster.root, TlsConfig(enabled=False), 30)
        names = ("partition", "data", "id") if has_row_ids else ("partition", "data")
        self.columns = Columns(names)
        self.task = WriteTask(f"attempts {partition}", True, 0, "run", 0)
        self.partition = partition
        self.sessions: list[WriterSession] = []

    def begin(self, **task: Any) -> TaskAttempt:
        session = WriterSession(self.where)
        self.sessions.append(session)
        return TaskAttempt(session, replace(self.task, **task), self.columns).__enter__()

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
    made = Attempts(cluster, next(partitions), has_row_ids=request.param)
    yield made
    made.close()


def test_attempts_abandoned_and_new_append_each_row_once(
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


def test_attempt_of_a_finished_epoch_is_refused(cluster: LocalCluster, attempts: Attempts) -> None:
    zombie, successor, next_epoch = attempts.begin(), attempts.begin(), attempts.begin(epoch=1)
    zombie.add(attempts.batch(range(10)))
    zombie.flush()
    for attempt, numbers in ((successor, range(20)), (next_epoch, range(20, 30))):
        attempt.add(attempts.batch(numbers))
        attempt.flush()
    zombie.add(attempts.batch(range(10, 20)))
    with pytest.raises(EpochIsOver):
        zombie.flush()
    found = [int(t.data) for t in written(cluster, attempts.partition)]
    assert found == list(range(30))


def test_attempt_of_a_finished_batch_is_refused(attempts: Attempts) -> None:
    zombie = attempts.begin(persistent=False)
    zombie.add(attempts.batch(range(10)))
    with pytest.raises(WriteIsOver):
        zombie.flush()


def test_attempt_ignores_rows_of_other_producers(cluster: LocalCluster, attempts: Attempts) -> None:
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
def test_attempts_in_any_order_append_each_row_once(
    cluster: LocalCluster, attempts: Attempts, seed: int
) -> None:
    """Attempts stop and continue at random; in the end one of each task finishes.

    With ids there are two runs, which distribute the rows over tasks in different ways.
    """
    chance = random.Random(seed)
    rows = range(120)
    cuts: dict[tuple[str, int], list[int]] = {("run", 0): [n % 70 for n in rows]}
    if attempts.columns.has_row_ids:
        cuts = {("a", task): [n for n in rows if n % 2 == task] for task in range(2)}
        cuts |= {("b", task): [n for n in rows if n // 60 == task] for task in range(2)}
    going: list[tuple[TaskAttempt, list[int]]] = []

    def begin(run: str, task: int) -> None:
        left = list(cuts[run, task])
        chance.shuffle(left)
        going.append((attempts.begin(run=run, task=task), left))

    def resume(attempt: TaskAttempt, left: list[int], count: int) -> None:
        attempt.add(attempts.batch(left[:count]))
        attempt.flush()
        del left[:count]

    for _ in range(2):
        for cut in cuts:
            begin(*cut)
    for _ in range(20):
        resume(*chance.choice(going), chance.randint(1, 40))
    last_run = chance.choice(sorted({run for run, _ in cuts}))
    for run, task in cuts:
        if run == last_run:
            begin(run, task)
            resume(*going[-1], len(rows))
    for attempt, left in going:
        resume(attempt, left, len(rows))
    found = Counter(int(t.data) for t in written(cluster, attempts.partition))
    expected = rows if attempts.columns.has_row_ids else cuts["run", 0]
    assert found == Counter(expected)
