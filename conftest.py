"""Fail skipped tests where WALTZ_CI is 1, because such a run must test everything."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

_SKIPS_FAIL = os.environ.get("WALTZ_CI") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the report of a skipped test into a failure."""
    report = yield
    if _SKIPS_FAIL and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the report of a skipped module into a failure."""
    report = yield
    if _SKIPS_FAIL and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"WALTZ_CI is 1, so no test may be skipped: {reason}"
