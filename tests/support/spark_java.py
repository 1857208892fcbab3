"""Java's options for the processes of Spark in tests, which run briefly. Starts Spark once.

Half of the CPU time of a Spark session that does little is the loading of classes. Java can map
them from an archive (class data sharing), which is made once for each installation and kept in
``build/``.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

_FOLDER = Path(__file__).parents[2] / "build" / "java"
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Less compiling, and no threads of a collector."""

# Java writes warnings about archives to the standard output.
_QUIET = "-Xshare:auto -Xlog:disable"


@functools.cache
def java_options() -> str:
    """Return the options, with an archive of the classes of Spark.

    Without an archive, for example because this Java cannot make one, Spark starts more slowly.
    """
    archive = _archive()
    return f"{_BRIEF} -XX:SharedArchiveFile={archive} {_QUIET}" if archive else _BRIEF


def _archive() -> Path | None:
    """Return the archive of this installation; make it if there is none. None if that fails."""
    java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    installed = f"{java!r} {pyspark.__version__} {pyspark.__file__}"
    archive = _FOLDER / f"spark-{hashlib.sha256(installed.encode()).hexdigest()[:16]}.jsa"
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others of several test processes wait
        if not archive.exists():
            for old in _FOLDER.glob("*.jsa"):
                old.unlink()
            _make(archive)
    return archive if archive.exists() else None


def _make(archive: Path) -> None:
    """Run a session whose Java writes the classes that it has loaded into ``archive``."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        made = Path(folder) / archive.name
        java = f"{_BRIEF} -XX:ArchiveClassesAtExit={made} {_QUIET}"
        variables = {
            "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{java}' pyspark-shell",
            "SPARK_LOCAL_DIRS": folder,
        }
        subprocess.run(
            [sys.executable, str(Path(__file__)), folder],
            env=os.environ | variables,
            capture_output=True,
            check=False,
        )
        if made.exists():
            made.rename(archive)


def _use_what_tests_use(folder: str) -> None:
    """Run a batch and a stream, with Python code in the workers, and stop Spark."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    rows = session.range(100).selectExpr("id % 7 as key", "cast(id as string) as text")
    counted = rows.groupBy("key").count()
    counted.write.parquet(f"{folder}/rows")
    session.read.parquet(f"{folder}/rows").orderBy("key").collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()
    stream = session.readStream.schema("key long, count long").parquet(f"{folder}/rows")
    query = (
        stream.groupBy("key")
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("counts")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    _use_what_tests_use(sys.argv[1])
