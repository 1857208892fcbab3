"""Compare this tree with another commit, by runs in turns. Starts processes, makes a worktree.

Runs as `python -m bench.compare BASE`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.compare.statistics import Comparison, Run, compare, history_line, last_commit
from bench.peers.measured import RECORDS
from bench.peers.processes import CommandFailed, run_command

_ROOT = Path(__file__).parents[2]
_HISTORY = _ROOT / "bench" / "history.jsonl"
_PACKAGES = (".", "services/server", "services/storage", "operator")
"""The folders of a tree that have its Python packages.

They are in PYTHONPATH, so that the tree's packages are imported and not the installed ones."""

console = Console(width=120)


@asynccontextmanager
async def _tree_of(commit: str) -> AsyncIterator[Path]:
    """Check ``commit`` out into a temporary folder, with the bench of this tree.

    The same bench must measure both commits: otherwise the ratios would also show its changes.
    """
    with tempfile.TemporaryDirectory(prefix="waltz-compare-") as home:
        tree = Path(home) / "tree"
        await run_command("git", "worktree", "add", "--detach", tree, commit, cwd=_ROOT)
        try:
            shutil.rmtree(tree / "bench")
            shutil.copytree(_ROOT / "bench", tree / "bench")
            yield tree
        finally:
            await run_command("git", "worktree", "remove", "--force", tree, cwd=_ROOT)


async def _run(tree: Path, shapes: list[str], size: int, scale: float) -> dict[str, Run]:
    """Measure each shape once with the product of ``tree``."""
    path = os.pathsep.join(str(tree / folder) for folder in _PACKAGES)
    printed = await run_command(
        *(sys.executable, "-m", "bench.compare.one_run", str(size), str(scale), *shapes),
        env={**os.environ, "PYTHONPATH": path},
        cwd=tree,
    )
    # The last line has the runs. Warnings may precede it.
    return {shape: Run(**run) for shape, run in json.loads(printed.splitlines()[-1]).items()}


async def _compare(
    base: str, shapes: list[str], pairs: int, size: int, scale: float
) -> list[Comparison]:
    """Run both trees in turns, and compare them."""
    # By tree: for each pair, the run of each shape.
    runs: dict[str, list[dict[str, Run]]] = {"base": [], "new": []}
    async with _tree_of(base) as base_tree:
        for number in range(pairs):
            # The order changes from pair to pair: if the machine gets slower with time, this
            # favours neither tree.
            turns = [("base", base_tree), ("new", _ROOT)]
            if number % 2 == 0:
                turns.reverse()
            for name, tree in turns:
                runs[name].append(await _run(tree, shapes, size, scale))
            console.print(f"pair {number + 1} of {pairs} is done")
    return [
        compare(shape, [run[shape] for run in runs["base"]], [run[shape] for run in runs["new"]])
        for shape in shapes
    ]


def _table(comparisons: list[Comparison]) -> Table:
    """Return a table with one row per shape.

    ``µs`` are those of CPU time per record. The columns ``rate`` and ``CPU`` are ratios, new to
    base.
    """
    table = Table(title="new commit to base, with 95 % confidence intervals")
    for name in ("clients x open", "base tx/s", "new tx/s", "rate", "base µs", "new µs", "CPU"):
        table.add_column(name, justify="right")
    for each in comparisons:
        table.add_row(
            each.shape,
            f"{each.base.rate:,.0f}",
            f"{each.new.rate:,.0f}",
            str(each.rate),
            f"{each.base.cpu_us:.1f}",
            f"{each.new.cpu_us:.1f}",
            str(each.cpu),
        )
    return table


def _command(
    base: Annotated[
        str | None,
        typer.Argument(
            help="The commit to compare with, such as HEAD~5.",
            show_default="the last one in bench/history.jsonl",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="A shape such as 8x5; repeatable. Default: 8x5 and 4x100."),
    ] = None,
    pairs: Annotated[int, typer.Option(min=3, help="The number of runs of each commit.")] = 5,
    size: Annotated[int, typer.Option(min=1, help="The bytes of a record.")] = 512,
    scale: Annotated[float, typer.Option(help="Multiply the number of records by this.")] = 1.0,
    max_rise: Annotated[
        float | None,
        typer.Option(help="Fail if the CPU time per record has risen by more percent than this."),
    ] = None,
    record: Annotated[
        bool, typer.Option(help="Add the medians of this tree to bench/history.jsonl.")
    ] = False,
) -> None:
    """Measure this tree and the commit BASE in turns, and compare rates and CPU per record.

    Both run with the libraries of this environment, and with the bench of this tree. Do nothing
    else on the machine.
    """
    shapes = shape or ["8x5", "4x100"]
    known = {f"{clients}x{window}" for clients, window in RECORDS}
    unknown = set(shapes) - known
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: the shapes are {', '.join(known)}")
    base = base or last_commit(_HISTORY.read_text())
    try:
        comparisons = asyncio.run(_compare(base, shapes, pairs, size, scale))
    except CommandFailed as failed:
        console.print(f"cannot compare with {base}: {failed}", markup=False)
        raise typer.Exit(2) from None
    console.print(_table(comparisons))
    if record:
        commit = asyncio.run(run_command("git", "rev-parse", "--short", "HEAD", cwd=_ROOT)).strip()
        with _HISTORY.open("a") as file:
            for each in comparisons:
                line = history_line(commit, f"{datetime.now(UTC):%Y-%m-%d}", each)
                file.write(json.dumps(line) + "\n")
    if max_rise is not None:
        risen = [each.shape for each in comparisons if each.has_risen(max_rise)]
        if risen:
            console.print(f"the CPU per record has risen by more than {max_rise:g} %: {risen}")
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(_command)
