"""Test that each row is appended once while tasks, executors and drivers are killed.

A stream from a log to a log, with a shuffle before the write, on separate executors, with
speculation. A killed driver is started again and continues from its checkpoint. One is killed in
the middle of a micro-batch, another between the last task and the commit. ``SPARK_KILLS`` is the
total number of kills (`make spark-kills`: 50).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.conftest import append, contents, end_of, wait_until
from tests.spark.faults import DIRECTORY, Fault, Faults
from tests.spark.sabotaged_query import ROWS_PER_BATCH
from tests.spark.standalone import DRIVER_HOST, environment, spark_cluster
from tests.spark.zombie import MAX_WAIT_SECONDS
from waltz.local import LocalCluster

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SPARK_KILLS", "10"))
RUN_SECONDS = 240


class Query:
    """A query that is started again and again; `close` ends all of its processes."""

    def __init__(self, cluster: LocalCluster, directory: Path, faults: Faults, master: str) -> None:
        self.faults = faults
        self._cluster = cluster
        self._directory = directory
        self._master = master
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, source: int, sink: int, *, has_row_ids: bool) -> int:
        """Run the query until it ends or is killed, and return how.

        With ``has_row_ids`` each run distributes the rows over other tasks.
        """
        tasks = 3 + len(self._processes) % 3 if has_row_ids else 4
        places = (self._cluster.layout.description, source, sink, self._directory / "checkpoint")
        command = [sys.executable, "-m", "tests.spark.sabotaged_query", self._master]
        command += [
            *map(str, places),
            str(tasks),
            *(["transaction_id AS id"] if has_row_ids else []),
        ]
        own = {DIRECTORY: str(self.faults.directory), "SPARK_LOCAL_IP": DRIVER_HOST}
        variables = environment(PYTHONPATH=str(ROOT), **own)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=variables, start_new_session=True
            )
        self._processes.append(process)
        return process.wait(RUN_SECONDS)

    @property
    def log(self) -> Path:
        return self._directory / "query.log"

    def close(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for zombie in self.faults.directory.glob("zombie-*/pid"):
            with suppress(ProcessLookupError):
                os.kill(int(zombie.read_text()), signal.SIGKILL)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spark_cluster(tmp_path_factory.mktemp("spark"), PYTHONPATH=str(ROOT)) as url:
        yield url


@pytest.fixture
def query(cluster: LocalCluster, tmp_path: Path, master: str) -> Iterator[Query]:
    faults = Faults(tmp_path / "faults")
    faults.directory.mkdir()
    made = Query(cluster, tmp_path, faults, master)
    yield made
    made.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("has_row_ids", [False, True], ids=["tasks", "ids"])
@pytest.mark.slow
def test_stream_with_kills_anywhere_appends_each_row_once(
    cluster: LocalCluster, partitions: Iterator[int], query: Query, has_row_ids: bool
) -> None:
    """Equal rows are among them, unless they have ids."""
    source, sink = next(partitions), next(partitions)
    kills = KILLS // 2
    query.faults.plan(kills, seed=int(has_row_ids))
    rows: list[bytes] = []
    while query.faults.left():
        more = ROWS_PER_BATCH * (2 + kills // 5)
        rows += [
            str(n if has_row_ids else n % 300).encode() for n in range(len(rows), len(rows) + more)
        ]
        append(cluster, source, rows[-more:])
        while status := query.run(source, sink, has_row_ids=has_row_ids):
            assert status == -signal.SIGKILL, query.log.read_text()[-5000:]
    done = query.faults.done()
    zombies = [outcome_of(query.faults.directory, number) for number in zombies_of(query.faults)]
    found = contents(cluster, {sink: end_of(cluster, sink)})
    assert Counter(t.data for t in found) == Counter(rows)
    assert done.total() - done[Fault.ZOMBIE] == kills
    for outcome in zombies:
        # Its successor had appended all rows by then.
        assert outcome["all"] == outcome["before"], outcome


def zombies_of(faults: Faults) -> list[int]:
    return [int(pid.parent.name.split("-")[1]) for pid in faults.directory.glob("zombie-*/pid")]


def outcome_of(directory: Path, number: int) -> dict[str, int]:
    """Return the outcome of a zombie that continued after its successor was committed."""
    place = directory / f"zombie-{number}"
    outcome = place / "outcome.json"
    log = place / "log"
    wait_until(lambda: outcome.exists() or "Traceback" in log.read_text(), MAX_WAIT_SECONDS)
    assert outcome.exists(), log.read_text()
    found: dict[str, int] = json.loads(outcome.read_text())
    return found
