"""The example that needs no cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_testing_example_prints_its_results() -> None:
    ended = subprocess.run(
        [sys.executable, EXAMPLES / "07_testing.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "booked: [0, 1, 2]\nafter a lock failure: seat 0\n"
