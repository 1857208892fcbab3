"""The Spark job: write the log to Parquet, check it, and answer a question. Runs Spark.

The question: how much of its delay does an aircraft pass on to its next flight from New York?
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from demo.checks import Findings
from demo.flights import NO_AIRCRAFT, Totals

GROUND_HOURS = (0, 2, 3, 6, 12)
"""The bounds of the classes of ground time, in hours.

The ground time is the time between two departures in which the aircraft was not in the air.
"""

_ROWS_PER_TASK = 25_000
"""How many transactions one task of Spark reads."""
_DELAY_STEP, _DELAY_MIN, _DELAY_MAX = 15, -15, 150
"""The classes of arrival delays, in minutes: the width of each, and the bounds of all together."""
_FEWEST_FLIGHTS = 30
"""A point of a curve needs at least this many flights: the mean of fewer says little."""
_FEWEST_OF_CARRIER = 1000
"""The share of an airline needs at least this many flights with a short ground time."""
_SHORT_GROUND_MINUTES = 180
"""A ground time is short below this bound, 3 hours. `Answer` has shares for short ones only."""

_RECORD = """
    departure BIGINT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    dep_delay INT, arr_delay INT, air_time INT, distance INT, previous BIGINT
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """How aircraft pass on delays.

    ``curves`` has one curve for each class of ground time, by the index of the class's lower bound
    in GROUND_HOURS. A point is an arrival delay and the mean delay of the next departure, both in
    minutes. ``carriers`` has, by the code of the airline, the share of the delay that is passed on
    with a ground time below 3 hours. ``overall`` is this share for all airlines together. ``pairs``
    is the number of pairs of consecutive departures of an aircraft.
    """

    curves: dict[int, list[tuple[float, float]]]
    carriers: dict[str, float]
    overall: float
    pairs: int


def read_log(spark: SparkSession, cluster_file: Path) -> DataFrame:
    """Return the flights in the log, with the columns of their transactions."""
    log = (
        spark.read.format("waltz")
        .option("cluster", str(cluster_file))
        .option("rowsPerTask", _ROWS_PER_TASK)
        .load()
    )
    record = sf.from_json(sf.col("data").cast("string"), _RECORD)
    return (
        log.withColumn("record", record)
        .withColumnRenamed("header", "aircraft")
        .select("partition", "transaction_id", "client_id", "aircraft", "record.*")
        .withColumn("departure", sf.timestamp_seconds(sf.col("departure") * 60))
    )


def write_parquet(flights: DataFrame, path: Path) -> None:
    """Write the flights that `read_log` returns."""
    flights.write.mode("overwrite").parquet(str(path))


def examine(flights: DataFrame, order_minutes: int) -> Findings:
    """Return the totals of the log and the faults in it.

    A flight is out of order if it was logged after a flight of its aircraft whose departure is more
    than ``order_minutes`` later.
    """
    identity = sf.struct("departure", "carrier", "flight", "origin")
    aircraft = sf.when(sf.col("aircraft") != NO_AIRCRAFT, sf.col("aircraft"))
    sums = _only_row(
        flights.agg(
            sf.count("*").alias("flights"),
            sf.count_distinct(aircraft).alias("aircraft"),
            *(sf.sum(name).alias(name) for name in ("distance", "dep_delay", "arr_delay")),
            sf.count_distinct(identity).alias("distinct"),
        )
    )
    distinct = sums.pop("distinct")
    by_partition = flights.groupBy("partition").agg(
        (sf.max("transaction_id") + 1 - sf.count_distinct("transaction_id")).alias("gaps")
    )
    gaps = _only_row(by_partition.agg(sf.sum("gaps").alias("gaps")))["gaps"]
    links_and_order = _only_row(_broken_links_and_disorder(flights, order_minutes))
    return Findings(
        Totals(**sums), gaps=gaps, doubles=sums["flights"] - distinct, **links_and_order
    )


def answer(flights: DataFrame) -> Answer | None:
    """Return the answer to the question, None if there are too few flights."""
    pairs = _pairs(flights).cache()
    class_start = sf.floor(sf.col("arr_delay") / _DELAY_STEP) * _DELAY_STEP
    class_middle = class_start + _DELAY_STEP / 2
    curves = (
        # `between` includes both bounds, but the last class ends before _DELAY_MAX.
        pairs.where(sf.col("arr_delay").between(_DELAY_MIN, _DELAY_MAX - 1))
        .groupBy("ground_class", class_middle.alias("delay"))
        .agg(sf.avg("next_delay").alias("next_delay"), sf.count("*").alias("count"))
        .where(sf.col("count") >= _FEWEST_FLIGHTS)
        .orderBy("ground_class", "delay")
        .collect()
    )
    short = pairs.where(sf.col("ground") < _SHORT_GROUND_MINUTES)
    # The slope of the regression line: the minutes of the next delay for each minute of this delay.
    share = sf.regr_slope(sf.col("next_delay"), sf.col("arr_delay")).alias("share")
    carriers = (
        short.groupBy("carrier")
        .agg(share, sf.count("*").alias("count"))
        .where(sf.col("count") >= _FEWEST_OF_CARRIER)
        .collect()
    )
    overall = _only_row(short.agg(share))["share"]
    if not curves or not carriers:
        return None
    points: dict[int, list[tuple[float, float]]] = {}
    for row in curves:
        points.setdefault(row.ground_class, []).append((row.delay, row.next_delay))
    return Answer(points, {row.carrier: row.share for row in carriers}, overall, pairs.count())


def _broken_links_and_disorder(flights: DataFrame, order_minutes: int) -> DataFrame:
    """Return one row: how many flights have a broken link, and how many are out of order."""
    by_log = Window.partitionBy("aircraft").orderBy("transaction_id")
    # The latest departure among the flights of the aircraft that were logged before this one.
    latest = sf.max("departure").over(by_log.rowsBetween(Window.unboundedPreceding, -1))
    late = sf.unix_timestamp(latest) - sf.unix_timestamp("departure") > order_minutes * 60
    wrong = ~sf.col("previous").eqNullSafe(sf.lag("transaction_id").over(by_log))
    marked = flights.where(sf.col("aircraft") != NO_AIRCRAFT).select(
        wrong.cast("int").alias("wrong"), late.cast("int").alias("late")
    )
    return marked.agg(
        sf.coalesce(sf.sum("wrong"), sf.lit(0)).alias("broken_links"),
        sf.coalesce(sf.sum("late"), sf.lit(0)).alias("disorder"),
    )


def _pairs(flights: DataFrame) -> DataFrame:
    """Return each flight with the delay of its aircraft's next departure.

    Omitted are flights that did not take off or did not arrive, and flights that have no class of
    ground time. Without a next departure there is no ground time.
    """
    by_time = Window.partitionBy("aircraft").orderBy("departure", "transaction_id")
    flown = flights.where((sf.col("aircraft") != NO_AIRCRAFT) & sf.col("dep_delay").isNotNull())
    interval_seconds = sf.unix_timestamp("next_departure") - sf.unix_timestamp("departure")
    ground_hours = sf.col("ground") / 60
    # The class of a ground time is null below the first bound, and from the last bound on.
    ground_class = sf.when(ground_hours < GROUND_HOURS[0], None)
    for number, end in enumerate(GROUND_HOURS[1:]):
        ground_class = ground_class.when(ground_hours < end, number)
    return (
        flown.withColumn("next_delay", sf.lead("dep_delay").over(by_time))
        .withColumn("next_departure", sf.lead("departure").over(by_time))
        # Between two departures from New York the aircraft flew out and back. In the rest of the
        # time it was on the ground, and could make up for a delay.
        .withColumn("ground", interval_seconds / 60 - 2 * sf.col("air_time"))
        .withColumn("ground_class", ground_class)
        .where(sf.col("ground_class").isNotNull() & sf.col("arr_delay").isNotNull())
        .select("carrier", "arr_delay", "next_delay", "ground", "ground_class")
    )


def _only_row(frame: DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = frame.collect()[0].asDict()
    return row
