"""Plants bugs and hunts for each with the simulator: `python -m tests.sim.mutants [WORD …]`.

A bug is planted into a copy of the product in a temporary directory; with words, only those bugs
are planted whose names contain one of them. Exits with 1 if a bug survives, or if its text is no
longer found in the product.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.sim.planted_batches import BATCH_BUGS
from tests.sim.planted_clients import CLIENT_BUGS
from tests.sim.planted_ranges import RANGE_BUGS
from tests.sim.planted_sessions import SESSION_BUGS
from tests.sim.planted_storage import STORAGE_BUGS
from tests.sim.planting import Planted

PLANTED = (*STORAGE_BUGS, *SESSION_BUGS, *CLIENT_BUGS, *BATCH_BUGS, *RANGE_BUGS)
ROOT = Path(__file__).parents[2]
SEEDS = 1000
_COPIED = (
    "waltz",
    "services",
    "tests/sim",
    "tests/support/faultdisk.py",
    "tests/support/inline_engine.py",
)
_PATHS = (".", "services/server", "services/storage")
_TEXT_COLUMNS = 90
_SLIP = re.compile(r"\b(NameError|UnboundLocalError|AttributeError|TypeError)\b")
"""Exceptions of a planted text that cannot run: it shows nothing about the simulator."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of the hunt for a planted bug."""

    planted: Planted
    runs: int
    guarantee: str | None
    """The guarantee that the last run violated, None if the bug survived."""
    broken: str

    def row(self, width: int) -> str:
        """Return a line of the table."""
        seed = str(self.runs - 1) if self.guarantee else "-"
        text = self.broken.replace("\n", " ").partition(" s: ")[2][:_TEXT_COLUMNS]
        caught = self.guarantee or "SURVIVED"
        return f"{self.planted.name:{width}} {caught:9} {seed:>4} {self.runs:5}  {text}".rstrip()


def hunt(planted: Planted, seeds: int = SEEDS) -> Hunt:
    """Plant a bug and run seeds until one fails; raises ValueError if it cannot be planted."""
    with tempfile.TemporaryDirectory(prefix="waltz-mutant-") as directory:
        root = Path(directory)
        for name in _COPIED:
            _copy(ROOT / name, root / name)
        planted.plant(root)
        paths = os.pathsep.join(str(root / path) for path in _PATHS)
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim.hunt", str(seeds)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        last = done.stderr.rstrip().rpartition("\n")[2]
        raise ValueError(f"{planted.name}: the hunt itself failed: {last}")
    found = json.loads(done.stdout)
    broken = found["broken"] or ""
    if _SLIP.search(broken):
        raise ValueError(f"{planted.name}: the planted text cannot run: {broken}")
    return Hunt(planted, found["runs"], found["guarantee"], broken)


def hunt_all(
    bugs: Sequence[Planted], workers: int, ended: Callable[[], None]
) -> tuple[list[Hunt], list[str]]:
    """Hunt for ``bugs``, several at a time; return the hunts, and why some failed to start."""
    hunts: dict[str, Hunt] = {}
    unfit = []
    with ThreadPoolExecutor(workers) as pool:
        for future in as_completed([pool.submit(hunt, planted) for planted in bugs]):
            try:
                result = future.result()
                hunts[result.planted.name] = result
            except ValueError as error:
                unfit.append(str(error))
            ended()
    return [hunts[planted.name] for planted in bugs if planted.name in hunts], unfit


def main(words: Sequence[str]) -> int:
    """Hunt with a progress bar, print a table; returns 1 if a bug survived."""
    bugs = [b for b in PLANTED if not words or any(word in b.name for word in words)]
    columns = (TextColumn("planted bugs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("planted bugs", total=len(bugs))
        hunts, unfit = hunt_all(bugs, os.cpu_count() or 1, lambda: progress.advance(task))
    width = max(len(planted.name) for planted in PLANTED)
    print(f"{'planted bug':{width}} {'caught by':9} seed runs  how")
    for result in hunts:
        print(result.row(width))
    survivors = [result.planted for result in hunts if result.guarantee is None]
    for planted in survivors:
        print(f"survived: {planted.name} ({planted.package.value}): {planted.breaks}")
    for reason in unfit:
        print(reason)
    print(f"{len(hunts) - len(survivors)} of {len(bugs)} planted bugs were caught")
    return 1 if survivors or unfit else 0


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
