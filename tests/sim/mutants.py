"""Plants bugs and has the simulator hunt for each: `python -m tests.sim.mutants [WORD …]`.

A bug is planted into a copy of the product in a temporary directory; with words, only those bugs
are planted whose names contain one of them. Exits with 1 if a bug survives or does not fit any
more.
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
_COPIED = ("waltz", "services", "tests/sim", "tests/faultdisk.py", "tests/inline_engine.py")
_PATHS = (".", "services/server", "services/storage")
_TOLD_COLUMNS = 90
_SLIP = re.compile(r"\b(NameError|UnboundLocalError|AttributeError|TypeError)\b")
"""What a bug shows that is badly planted, and no bug of the kind that it was meant to be."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How the hunt for a planted bug ended."""

    planted: Planted
    lives: int
    promise: str | None
    """The promise that the last life broke, None if the bug survived."""
    broken: str

    def row(self, width: int) -> str:
        """Return a line of the table."""
        seed = str(self.lives - 1) if self.promise else "-"
        told = self.broken.replace("\n", " ").partition(" s: ")[2][:_TOLD_COLUMNS]
        caught = self.promise or "SURVIVED"
        return f"{self.planted.name:{width}} {caught:9} {seed:>4} {self.lives:5}  {told}".rstrip()


def hunt(planted: Planted, seeds: int = SEEDS) -> Hunt:
    """Plant a bug and live seeds until it shows; raises ValueError if it cannot be planted."""
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
    return Hunt(planted, found["lives"], found["promise"], broken)


def hunt_all(
    bugs: Sequence[Planted], workers: int, ended: Callable[[], None]
) -> tuple[list[Hunt], list[str]]:
    """Hunt for ``bugs``, several at a time; return the hunts, and why some could not begin."""
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
    print(f"{'planted bug':{width}} {'caught by':9} seed lives  how")
    for result in hunts:
        print(result.row(width))
    survivors = [result.planted for result in hunts if result.promise is None]
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
