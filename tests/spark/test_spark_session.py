"""Test the messages about common mistakes when a session is created."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import waltz.spark
from waltz.spark.requirements import check_packages
from waltz.spark.session import check_version, check_workers


def test_missing_package_is_named_with_its_install_command() -> None:
    with pytest.raises(ImportError, match=r"needs pyspark: pip install 'waltz-log\[spark\]'"):
        check_packages(lambda name: None if name == "pyspark" else object())


def test_requirements_beside_an_installed_spark_do_not_install_another_spark() -> None:
    remedy = r"needs pyarrow: pip install 'waltz-log\[spark-connector\]'"
    with pytest.raises(ImportError, match=remedy):
        check_packages(lambda name: None if name == "pyarrow" else object())


def test_session_with_an_old_spark_is_refused() -> None:
    check_version("4.2.0")
    check_version("10.0.1.dev0")
    with pytest.raises(waltz.spark.SparkUnsuitable, match=r"this is Spark 4\.1\.1"):
        check_version("4.1.1")


@pytest.mark.parametrize("command", [sys.executable, Path(sys.executable).name])
def test_session_workers_with_this_python_are_accepted(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    check_workers(command)


@pytest.mark.parametrize("command", ["/usr/bin/env", "no-such-python"])
def test_session_workers_with_another_python_are_refused(command: str) -> None:
    with pytest.raises(waltz.spark.SparkUnsuitable, match=f"are started as {command}, which"):
        check_workers(command)


def test_session_is_shared_within_a_process(spark: Any) -> None:
    assert waltz.spark.session("another") is spark


OTHER_PYTHON = """
import os
os.environ["PYSPARK_PYTHON"] = "/usr/bin/env"
from pyspark.sql import SparkSession
import waltz.spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    waltz.spark.register(spark)
except waltz.spark.SparkUnsuitable as problem:
    print(problem)
"""


@pytest.mark.slow
def test_session_started_elsewhere_can_be_registered(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PYTHON],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        cwd=tmp_path,
    )
    assert "set PYSPARK_PYTHON to" in done.stdout


SUBMITTED = """
import sys
import waltz.spark
spark = waltz.spark.session("of its own")
print(spark.sparkContext.master, spark.sparkContext.pythonExec == sys.executable)
"""


@pytest.mark.slow
def test_session_uses_master_of_spark_submit(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    submit = Path(sys.executable).with_name("spark-submit")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK")}
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", program],
        env=environment | {"PATH": f"{submit.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )
    printed = done.stdout.splitlines()[-1:]
    assert printed == ["local[1] True"], done.stdout + done.stderr[-2000:]
