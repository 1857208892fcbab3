"""A run with WALTZ_CI=1 fails if it skips a test or a module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {
    "call": "import pytest\ndef test_it():\n    pytest.skip('no call')",
    "marker": "import pytest\n@pytest.mark.skip(reason='no marker')\ndef test_it(): pass",
    "module": "import pytest\npytest.skip('no module', allow_module_level=True)",
    "fixture": "import pytest\n@pytest.fixture\ndef helm():\n    pytest.skip('no fixture')\n"
    "def test_it(helm): pass",
}
"""A file of tests for each way to skip a test."""

NOT_SKIPPED = """
import pytest
def test_it(): pass
@pytest.mark.xfail
def test_other(): assert False
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of a run of all files of SKIPPED, for each value of WALTZ_CI.

    The processes of both runs work at the same time: most of their time is for imports.
    """
    folder = tmp_path_factory.mktemp("skipped")
    for name, source in SKIPPED.items():
        (folder / f"test_{name}.py").write_text(source)
    runs = {ci: start(folder, ci) for ci in ("1", "")}
    found = {ci: process.communicate()[0] for ci, process in runs.items()}
    assert runs["1"].returncode == pytest.ExitCode.TESTS_FAILED, found["1"]
    assert runs[""].returncode == pytest.ExitCode.OK, found[""]
    return found


def start(folder: Path, ci: str) -> subprocess.Popen[str]:
    """Run the tests in ``folder`` with the repository's conftest.py."""
    shutil.copy(ROOT / "conftest.py", folder)
    # Without the last option, pytest runs no test if it cannot collect a file.
    options = ["-p", "no:cacheprovider", "-c", os.devnull, "-rs", "--continue-on-collection-errors"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", str(folder)],
        cwd=folder,
        env=os.environ | {"WALTZ_CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("name", SKIPPED)
def test_skip_fails_in_ci_only(outputs: dict[str, str], name: str) -> None:
    failure = f"no test may be skipped: Skipped: no {name}\n"
    assert outputs["1"].count(failure) == 1, outputs["1"]
    assert f"no {name}\n" in outputs[""], outputs[""]
    assert "may be skipped" not in outputs[""], outputs[""]


def test_each_skip_is_counted(outputs: dict[str, str]) -> None:
    assert "1 failed, 3 errors" in outputs["1"], outputs["1"]
    assert f"{len(SKIPPED)} skipped" in outputs[""], outputs[""]


def test_passing_tests_and_expected_failures_pass_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(NOT_SKIPPED)
    process = start(tmp_path, "1")
    output, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.OK, output
