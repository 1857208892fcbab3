"""Show the progress of a verb on a terminal. Writes to standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Advance = Callable[[int], None]
"""Called with the number of items that were completed since the last call."""


@contextmanager
def progress_towards(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of ``what``; yield a function that reports the progress.

    The arguments of the function are the number of completed items and the total number of items.
    If standard error is not a terminal, nothing is shown.
    """
    with _bar(_with_total(what)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show how many items of ``total`` are complete; yield a function that adds completed items.

    If ``total`` is None, the total is unknown, and only the number of completed items is shown. If
    standard error is not a terminal, nothing is shown.
    """
    if total is None:
        counting = TextColumn("{task.completed}")
        columns = [SpinnerColumn(), counting, TextColumn(what), TimeElapsedColumn()]
    else:
        columns = _with_total(what)
    with _bar(columns) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _with_total(what: str) -> list[ProgressColumn]:
    """Return the columns of a bar whose total is known."""
    times = TimeElapsedColumn(), TimeRemainingColumn()
    return [TextColumn(what), BarColumn(), MofNCompleteColumn(), *times]


def _bar(columns: list[ProgressColumn]) -> Progress:
    """Return a bar on standard error that disappears when it ends."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
