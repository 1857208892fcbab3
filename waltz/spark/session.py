"""Sessions that know the format ``waltz``, and the traps on the way there. Starts Spark.

Touches environment variables that Spark reads when it starts Python workers.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from waltz.spark.source import FilteringDataSource, WaltzDataSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting: whether sources written in Python are given the filters of a query."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""A variable that programs have which spark-submit started: Spark runs by then."""

_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_OLDEST = (4, 2)


class SparkUnsuitable(RuntimeError):
    """Spark cannot run this source as it is set up; the text says what to change."""


def register(spark: SparkSession) -> None:
    """Make the format ``waltz`` known to a session.

    Filters are taken if the session's `PUSHDOWN` is on now; register again after changing it.
    Raises SparkUnsuitable.
    """
    check(pyspark.__version__)
    if spark.sparkContext.master.startswith("local"):
        check_workers(spark.sparkContext.pythonExec)
    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(FilteringDataSource if pushes else WaltzDataSource)


def session(
    name: str = "waltz",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session that knows the format ``waltz``, and runs this Python in its workers.

    Without ``master`` it is that of spark-submit, in a program that spark-submit has started, and
    otherwise all cores of this machine. If the process has a session already, it is that one, with
    its own master. Raises SparkUnsuitable.
    """
    check(pyspark.__version__)
    submitted = _SUBMITTED in os.environ
    if SparkSession.getActiveSession() is None:
        for variable in _PYTHONS:
            if not (submitted and variable in os.environ):
                os.environ[variable] = sys.executable
    builder = SparkSession.builder.appName(name).config(PUSHDOWN, "true")
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def check(version: str) -> None:
    """Raise SparkUnsuitable if the Spark of that version has not what is needed here."""
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < _OLDEST:
        raise SparkUnsuitable(
            f"this is Spark {version}, and sources in Python can say where a stream is only since "
            "4.2: pip install --upgrade 'waltz-log[spark]'"
        )


def check_workers(command: str) -> None:
    """Raise SparkUnsuitable if ``command``, which starts Spark's workers, is another Python."""
    path = shutil.which(command)
    # Compared by folder: the Pythons of all environments may be links to one file.
    if path is None or not os.path.samefile(Path(path).parent, Path(sys.executable).parent):
        raise SparkUnsuitable(
            f"the workers of this Spark session are started as {command}, which is not the Python "
            f"that runs here: stop the session, set PYSPARK_PYTHON to {sys.executable}, and start "
            "it again, or start it with waltz.spark.session()"
        )
