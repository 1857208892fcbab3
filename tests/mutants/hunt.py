"""Hunt one planted bug in this process. Changes the imports and the output of this process.

In a process that has not imported the product yet, an import hook plants the bug: the module is
executed with the changed text, and no file changes. Seeds and ordered runs are simulated in this
process; tests are run by pytest in it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutants.planting import (
    ROOT,
    SOURCE_ROOTS,
    CaughtBy,
    Nodes,
    OrderedRuns,
    Planted,
    Seeds,
    module_name,
)

SECONDS_OF_A_TEST = 5
"""The time limit of a test in a hunt: a bug that makes a test wait is caught by the limit."""

SECONDS_OF_AN_UNCHANGED_TEST = 60
"""The time limit without a bug: a busy machine must not make a test fail."""

TEST_HANGS = 86
"""The exit code of this process when the exceptions of the time limit do not end a test."""

_ALARMS_OF_A_TEST = 3
_PRODUCT = ("waltz", "waltz_server", "waltz_storage", "waltz_operator")
_SLIP = re.compile(r"\b(NameError|UnboundLocalError|AttributeError|SyntaxError)\b")
"""Exceptions of a planted text that cannot run: it shows nothing about the tests."""


class HuntFailed(Exception):
    """The hunt shows nothing about the bug; the text names the reason."""


@dataclass(frozen=True, slots=True)
class Caught:
    """How a bug was caught: the guarantee or the test, and the first words of the failure.

    ``seed`` is the seed that caught it, None if a test did.
    """

    by: str
    text: str
    seed: int | None = None


def hunt(planted: Planted) -> Caught | None:
    """Plant the bug into this process and hunt for it; return None if it survives.

    Raises HuntFailed, or ValueError if the text of the bug is not found.
    """
    path, text = planted.place()
    plant(module_name(path), path, text)
    return find(planted.caught_by)


def find(caught_by: CaughtBy) -> Caught | None:
    """Hunt for the bug that is in this process; return None if nothing catches it.

    Raises HuntFailed.
    """
    match caught_by:
        case Seeds():
            caught = _simulate(caught_by)
        case OrderedRuns(kind, lost, count):
            caught = _simulate_orders(kind, lost, count)
        case Nodes(names):
            caught = run_tests(names, SECONDS_OF_A_TEST)
    if caught is not None and _SLIP.search(caught.text):
        raise HuntFailed(f"the planted text cannot run: {caught.text}")
    return caught


def plant(module: str, path: Path, text: str) -> None:
    """Execute ``text`` instead of the file's whenever ``module`` is imported."""
    imported = sorted(name for name in sys.modules if name.partition(".")[0] in _PRODUCT)
    assert not imported, f"imported before the bug is planted: {imported}"
    sys.path[:0] = [str(ROOT / folder) for folder in SOURCE_ROOTS]
    sys.meta_path.insert(0, _Finder(module, path, text))


class _Finder(MetaPathFinder):
    """Finds one module and loads it from its changed text."""

    def __init__(self, module: str, path: Path, text: str) -> None:
        self._module = module
        self._loader = _Loader(module, str(path), text)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the changed module, None for every other."""
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(
            fullname, self._loader.path, loader=self._loader
        )


class _PlantedFirst:
    """Keeps `_Finder` first: pytest puts a finder before it, which finds the unchanged module."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        sys.meta_path.sort(key=lambda finder: not isinstance(finder, _Finder))


class _Loader(SourceFileLoader):
    """Compiles the changed text; does not read or write compiled files."""

    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed text."""
        return compile(self._text, self.path, "exec", dont_inherit=True)


# The simulator imports the product, so it must be imported after the bug is planted.


def _simulate(seeds: Seeds) -> Caught | None:
    from tests.sim.nodes_run import run_nodes_seed

    for seed in seeds.in_order():
        result = run_nodes_seed(seed)
        if result.violated is not None:
            text = (result.violation or "").replace("\n", " ").partition(" s: ")[2]
            return Caught(result.violated.name, f"seed {seed}: {text}", seed)
    return None


def _simulate_orders(kind: str, lost: bool, count: int) -> Caught | None:
    from tests.sim.ordered_run import OrderedRun

    for seed in range(count):
        result = OrderedRun(seed, kind, lost=lost).result()
        if result.violated is not None:
            return Caught(result.violated.name, f"{kind}, {result.violation}".replace("\n", " "))
        # A fork of the warm process collects no garbage, and a run leaves much of it.
        gc.collect()
    return None


@dataclass(slots=True, eq=False)
class _Recorder:
    """A plugin of pytest that keeps the first failure, and ends tests that last too long."""

    failed: Caught | None = None
    error: str = ""
    passed: set[str] = field(default_factory=set)
    _test: str = ""
    _runs: bool = False
    _alarms: int = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's failure."""
        if report.failed and self.failed is None:
            self.failed = Caught(_name_of(report.nodeid), _failure(report))
        elif report.passed and report.when == "call":
            self.passed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_timeout_set_timer(
        self, item: pytest.Item, settings: Any
    ) -> Generator[None, Any, Any]:
        """Repeat the alarm that fails a test.

        The alarm raises an exception wherever the test is. In a callback of the event loop, asyncio
        logs the exception and continues. The handler of pytest-timeout needs a terminal, and raises
        an exception that the product may catch without it.
        """
        result = yield
        self._test, self._runs, self._alarms = _name_of(item.nodeid), True, 0
        signal.signal(signal.SIGALRM, self._alarm)
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        """Let the timer run: fixtures and threads of a failed test may hang at pytest's end."""
        self._runs = False
        return True

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        self._alarms += 1
        if self._alarms >= _ALARMS_OF_A_TEST and (self._runs or self.failed is not None):
            os._exit(TEST_HANGS)
        if self._runs:
            # The exception may be raised in pytest itself, which is then an internal error.
            self.failed = self.failed or Caught(self._test, "Timeout: the test does not end")
            pytest.fail(self.failed.text)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the reason why a file cannot be imported."""
        if report.failed:
            self.error = f"the tests cannot be imported: {report.longrepr}"

    def pytest_internalerror(self, excrepr: object) -> None:
        """Keep the reason why pytest itself failed."""
        self.error = f"pytest failed: {excrepr}"


def _name_of(nodeid: str) -> str:
    return nodeid.removeprefix("tests/")


def run_tests(names: Sequence[str], seconds: int = SECONDS_OF_AN_UNCHANGED_TEST) -> Caught | None:
    """Run tests in this process until one fails; return None if all pass.

    A test fails after ``seconds``. Raises HuntFailed.
    """
    recorder = _Recorder()
    status = run_pytest(("-x", f"--timeout={seconds}"), names, recorder)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if recorder.failed is not None:
        return recorder.failed
    if recorder.error:
        raise HuntFailed(recorder.error)
    if status != pytest.ExitCode.OK or not recorder.passed:
        raise HuntFailed(f"pytest ended with {status!r}, {len(recorder.passed)} tests passed")
    return None


def run_pytest(options: Sequence[str], names: Sequence[str], *recorders: object) -> int:
    """Run pytest in this process, without output and with ``recorders`` as plugins.

    ``names`` are tests or files, relative to ``tests``. Return the exit status of pytest.
    """
    general = ("-o", "addopts=--import-mode=importlib", "--hypothesis-profile=hunt")
    without = ("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:xdist")
    os.chdir(ROOT)
    # Random examples and their reduction would make hunts of different results and lengths.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("hunt", derandomize=True, deadline=None, phases=phases)
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        paths = [str(ROOT / "tests" / name) for name in names]
        plugins = [_PlantedFirst(), *recorders]
        return pytest.main([*options, *general, *without, *paths], plugins=plugins)


def found_at_exit(exit_code: int | None) -> Caught | str:
    """Return what the exit code of a process says that has ended during its hunt."""
    if exit_code == TEST_HANGS:
        return Caught("a test", "Timeout: the test does not end, also not by exceptions")
    return f"the process ended with {exit_code}"


def _failure(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)
