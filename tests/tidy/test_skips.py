"""A run with WALTZ_CI=1 fails if it skips a test or a module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of ``source`` in ``folder`` with the repository's conftest.py."""
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull]
    return subprocess.run(
        [*command, f"--rootdir={folder}", str(folder)],
        cwd=folder,
        env=os.environ | {"WALTZ_CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\ndef test_it():\n    pytest.skip('no helm')",
        "import pytest\n@pytest.mark.skip(reason='no helm')\ndef test_it(): pass",
        "import pytest\npytest.skip('no helm', allow_module_level=True)",
        "import pytest\n@pytest.fixture\ndef helm():\n    pytest.skip('no helm')\n"
        "def test_it(helm): pass",
    ],
    ids=["call", "marker", "module", "fixture"],
)
def test_skip_fails_in_ci_only(tmp_path: Path, source: str) -> None:
    in_ci = run(tmp_path, source, "1")
    assert in_ci.returncode in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert "no test may be skipped: Skipped: no helm" in in_ci.stdout, in_ci.stdout
    elsewhere = run(tmp_path, source, "")
    assert "1 skipped" in elsewhere.stdout, elsewhere.stdout


def test_passing_tests_and_expected_failures_pass_in_ci(tmp_path: Path) -> None:
    source = "import pytest\ndef test_it(): pass\n"
    source += "@pytest.mark.xfail\ndef test_other(): assert False"
    assert run(tmp_path, source, "1").returncode == pytest.ExitCode.OK
