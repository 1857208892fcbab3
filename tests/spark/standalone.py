"""Run a Spark cluster in separate processes: a master, and workers on two addresses.

Spark runs no second copy of a task on the same host, so each worker has its own host name; all of
them are this machine.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.spark.conftest import wait_until
from tests.support.spark_java import java_options

HOME = Path(pyspark.__file__).parent
DRIVER_HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
_START_SECONDS = 120
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


def environment(**more: str) -> dict[str, str]:
    """Return the environment of all processes of Spark."""
    return os.environ | {"SPARK_HOME": str(HOME)} | {"JAVA_TOOL_OPTIONS": java_options()} | more


@contextmanager
def spark_cluster(directory: Path, **more: str) -> Iterator[str]:
    """Start a cluster that keeps its files in ``directory``, and yield its URL.

    ``more`` is added to the environment of executors.
    """
    variables = environment(
        **more,
        SPARK_DAEMON_JAVA_OPTS="-Dspark.deploy.maxExecutorRetries=-1",
        SPARK_NO_DAEMONIZE="1",
    )
    running: list[subprocess.Popen[bytes]] = []
    log = directory / "master.log"
    try:
        running.append(
            _start(
                variables, log, _MASTER, "--host", DRIVER_HOST, "--port", "0", "--webui-port", "0"
            )
        )
        wait_until(lambda: _URL.search(log.read_text()) is not None, _START_SECONDS)
        found = _URL.search(log.read_text())
        assert found is not None
        for number, host in enumerate(WORKER_HOSTS):
            place = directory / f"worker-{number}"
            options = ("--host", host, "--webui-port", "0", "--cores", "2", "--memory", "1g")
            worker_log = directory / f"worker-{number}.log"
            running.append(
                _start(variables, worker_log, _WORKER, *options, "-d", str(place), found[1])
            )
        yield found[1]
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def _start(
    variables: Mapping[str, str], log: Path, name: str, *options: str
) -> subprocess.Popen[bytes]:
    command = [str(HOME / "bin" / "spark-class"), name, *options]
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=variables)
