"""Print which branches of the parsers the fuzzer has reached."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import coverage

_SHOWN_MISSING = 6


def branch_table(measurements: Iterable[coverage.Coverage]) -> str:
    """Return a table: module, branches reached, of how many, and the first that were not."""
    measured = coverage.Coverage(data_file=None, branch=True, config_file=False)
    for each in measurements:
        measured.get_data().update(each.get_data())
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        measured.json_report(outfile=str(report))
        files: dict[str, Any] = json.loads(report.read_text())["files"]
    lines = [f"{'module':48} {'branches':>11} {'':>5}  not reached (from→to line)"]
    reached = total = 0
    for path, found in sorted(files.items()):
        summary = found["summary"]
        covered, count = summary["covered_branches"], summary["num_branches"]
        reached, total = reached + covered, total + count
        missing = [f"{a}→{abs(b)}" for a, b in found["missing_branches"]]
        shown = " ".join(missing[:_SHOWN_MISSING]) + (" …" if missing[_SHOWN_MISSING:] else "")
        lines.append(f"{_shown(path):48} {_share(covered, count)}  {shown}")
    lines.append(f"{'all':48} {_share(reached, total)}")
    return "\n".join(lines)


def _share(covered: int, count: int) -> str:
    percent = 100 * covered // count if count else 100
    return f"{covered:5} /{count:4} {percent:4}%"


def _shown(path: str) -> str:
    return path.removeprefix("services/server/").removeprefix("services/storage/")
