"""The profile of Hypothesis for all tests, and the order and groups of tests that run in parallel.

Changes the settings of this process.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_HERE = Path(__file__).parent

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

_LONGEST = ("spark/test_spark_kills", "sim/test_runs", "spark", "docs", "sim", "integration")
"""What starts first, so that no worker begins a long group when the others have nothing to do."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each file in one worker unless its tests name a group; start with the longest groups."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    items.sort(key=_rank)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_name(item)))


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).with_suffix("").as_posix()


def _rank(item: pytest.Item) -> int:
    name = _name(item)
    return next((n for n, prefix in enumerate(_LONGEST) if name.startswith(prefix)), len(_LONGEST))
