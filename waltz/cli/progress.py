"""Shows people how far something has come, if they are watching. Writes to standard error."""

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
"""Told how many more are done."""


@contextmanager
def progress_towards(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show ``what`` and how far it is; yield what is told how much is done, of how much."""
    with _bar(_with_total(what)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show ``what`` and how many of ``total`` are done; yield what moves it on.

    Without a total the number alone is shown. Where nobody watches, nothing is.
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
    times = TimeElapsedColumn(), TimeRemainingColumn()
    return [TextColumn(what), BarColumn(), MofNCompleteColumn(), *times]


def _bar(columns: list[ProgressColumn]) -> Progress:
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
