"""Create Spark sessions with the format ``waltz`` registered. Starts Spark.

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
"""The setting that makes Spark pass the filters of a query to sources in Python."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""An environment variable that spark-submit sets in the programs that it starts."""

_PYTHON_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""The environment variables that name the Python of Spark's workers and of the driver."""
_OLDEST_SPARK = (4, 2)
"""The oldest version, major and minor number, that can run this source."""


class SparkUnsuitable(RuntimeError):
    """Spark cannot run this source in its present setup; the text says what to change."""


def register(spark: SparkSession) -> None:
    """Register the format ``waltz`` in a session.

    The registered source accepts filters if the session's setting `PUSHDOWN` is on now. After a
    change of the setting, register again. Raises SparkUnsuitable.
    """
    check_version(pyspark.__version__)
    # Workers on other machines are not checked: the paths there are other ones.
    if spark.sparkContext.master.startswith("local"):
        check_workers(spark.sparkContext.pythonExec)
    pushes_filters = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(FilteringDataSource if pushes_filters else WaltzDataSource)


def session(
    name: str = "waltz",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with the format ``waltz``.

    The workers run this Python, unless spark-submit started this program and the environment names
    another Python. Without ``master``, a program that spark-submit started uses the master of
    spark-submit; any other program uses all cores of this machine. If the process has a session
    already, that session is returned, with its own master and its own Python. Raises
    SparkUnsuitable.
    """
    check_version(pyspark.__version__)
    submitted = _SUBMITTED in os.environ
    if SparkSession.getActiveSession() is None:
        for variable in _PYTHON_VARIABLES:
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


def check_version(version: str) -> None:
    """Raise SparkUnsuitable if ``version`` of Spark is too old."""
    major_and_minor = tuple(int(number) for number in version.split(".")[:2])
    if major_and_minor < _OLDEST_SPARK:
        raise SparkUnsuitable(
            f"this is Spark {version}, but only since Spark 4.2 can sources in Python report a "
            "stream's position: pip install --upgrade 'waltz-log[spark]'"
        )


def check_workers(command: str) -> None:
    """Raise SparkUnsuitable if ``command``, which starts Spark's workers, is not this Python."""
    path = shutil.which(command)
    # The folders are compared, because the Pythons of all environments may be links to one file.
    if path is None or not os.path.samefile(Path(path).parent, Path(sys.executable).parent):
        raise SparkUnsuitable(
            f"the workers of this Spark session are started as {command}, which is not the Python "
            f"that runs here: stop the session, set PYSPARK_PYTHON to {sys.executable}, and start "
            "a new session; waltz.spark.session() sets the variable itself"
        )
