"""The profile of Hypothesis, the options of Spark, and the order and groups of parallel tests.

Changes the settings of this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.support.scheduling import Groups

# A deadline and the checks of speed fail on a busy machine. The examples of a test follow from its
# name and its code: a failure can be repeated, and a run does not depend on earlier runs.
settings.register_profile(
    "waltz",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
settings.load_profile("waltz")

_SHARING = {
    "spark": ("spark/",),
    "site": ("docs/test_docs_api", "docs/test_docs_pages"),
    "cluster": (
        "integration/test_cli_client",
        "integration/test_cli_top",
        "integration/test_cli_transfer",
        "integration/test_client_threads",
        "integration/test_cluster_bad_input",
        "integration/test_cluster_cli",
        "integration/test_cluster_end_to_end",
        "integration/test_cluster_metrics",
        "integration/test_operator_observes",
    ),
}
"""Files or folders whose tests share what takes seconds to start: one worker runs them all."""

_ALONE = ("spark/test_spark_kills", "spark/test_spark_page")
"""Files that start a cluster or Spark of their own."""

_LONGEST = (
    "spark/test_spark_kills",
    "sim/test_nodes_runs",
    "spark/",
    "docs/",
    "sim/",
    "integration/",
)
"""What starts first, so that no worker begins a long group when the others have nothing to do."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Use one worker more than cores: many tests wait for processes, and the cores would be idle.

    None lets pytest-xdist decide, by the variable that users know.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    """Run the tests in groups if ``--dist loadgroup`` is given."""
    if config.getoption("dist") != "loadgroup":
        return None
    return Groups(config, log, lambda nodeid: _group(_name(nodeid)))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Start with the longest groups if the tests run in parallel."""
    yield  # Tests are selected by their markers, and ordered by their fixtures.
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _rank(_name(item.nodeid)))


def _name(nodeid: str) -> str:
    """Return the path of a test's file below this folder, without its suffix."""
    return nodeid.partition(".py::")[0].removeprefix("tests/")


def _group(name: str) -> str:
    """Return the group of a test: its file, or the files that share something."""
    if name not in _ALONE:
        for group, members in _SHARING.items():
            if name.startswith(members):
                return group
    return name


def _rank(name: str) -> int:
    return next((n for n, prefix in enumerate(_LONGEST) if name.startswith(prefix)), len(_LONGEST))


@pytest.fixture(scope="session")
def spark_starts_quickly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the processes of Spark start in half the time, also those that a program starts.

    Killed processes leave files behind; these lie in a directory of the tests.
    """
    # Only here, because it imports pyspark.
    from tests.support.spark_java import java_options

    files = tmp_path_factory.mktemp("java")
    options = java_options()
    java = f"{options} -Djava.io.tmpdir={files}"
    with pytest.MonkeyPatch.context() as patch:
        # For sessions of Python programs; the next two are for ``spark-submit``.
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{java}' pyspark-shell")
        patch.setenv("SPARK_SUBMIT_OPTS", java)
        patch.setenv("SPARK_LAUNCHER_OPTS", options)
        patch.setenv("SPARK_LOCAL_DIRS", str(files))
        yield
