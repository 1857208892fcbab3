"""Run the examples of `examples/spark` one after the other on one small cluster.

Each test needs the transactions of the tests before it.
"""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from waltz.local import LocalCluster, Shape

ROWS = 3000
EXAMPLES = Path(__file__).parents[2] / "examples/spark"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("examples-cluster")
    cluster = LocalCluster(directory, Shape(partitions=4, storages=1, servers=1))
    asyncio.run(cluster.start())
    yield str(cluster.layout.description)
    asyncio.run(cluster.stop())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("spark-out"))


def example(name: str) -> Callable[..., None]:
    [file] = EXAMPLES.glob(f"*_{name}.py")
    main: Callable[..., None] = runpy.run_path(str(file))["main"]
    return main


def logged(spark: Any, cluster_file: str, partitions: str) -> int:
    reader = spark.read.format("waltz").option("cluster", cluster_file)
    count: int = reader.option("partitions", partitions).load().count()
    return count


def test_example_flights_are_appended_once(
    spark: Any, cluster_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        example("flights")(cluster_file, str(ROWS))
        assert logged(spark, cluster_file, "0-1") == ROWS
    assert capsys.readouterr().out == "3,000 flights are in the log\n" * 2


def test_example_to_parquet_prints_delays_by_airport(
    spark: Any, cluster_file: str, out: str
) -> None:
    example("to_parquet")(cluster_file, out)
    ids = spark.read.parquet(f"{out}/flights").select("id").collect()
    assert sorted(row[0] for row in ids) == list(range(ROWS))


def test_example_upsert_follows_the_log(spark: Any, cluster_file: str, out: str) -> None:
    for _ in range(2):
        example("upsert")(cluster_file, out)
    version = Path(out, "latest/CURRENT").read_text()
    latest = spark.read.parquet(f"{out}/latest/{version}")
    flights = spark.read.parquet(f"{out}/flights")
    aircraft = flights.where("tailnum IS NOT NULL").select("tailnum").distinct().count()
    assert latest.count() == aircraft


def test_example_sessions_draws_a_picture(cluster_file: str, out: str) -> None:
    example("sessions")(cluster_file, out)
    assert Path(out, "sessions.png").read_bytes().startswith(b"\x89PNG")


def test_example_ledger_counts_the_payments_of_every_run(
    spark: Any, cluster_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for paid_in in (800, 1600):
        example("ledger")(cluster_file)
        printed = capsys.readouterr().out
        assert f"\n{paid_in} in all accounts together; {paid_in} were paid in\n" in printed


def test_example_parquet_appended_twice_is_there_once(
    spark: Any, cluster_file: str, out: str
) -> None:
    for _ in range(2):
        example("from_parquet")(cluster_file, out)
        assert (
            logged(spark, cluster_file, "2") == spark.read.parquet(f"{out}/planes.parquet").count()
        )
