"""Print the demo's steps, their durations, and progress bars. Touches the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from demo.checks import Check

_WIDTH = 66
"""The width of the text of a step, in characters, so that all durations are in one column."""

SetDone = Callable[[int, int], None]
"""Called with the number of completed items and the total."""


class Screen:
    """Prints to the terminal, and counts the seconds of the demo."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._begun = time.monotonic()

    def title(self, text: str) -> None:
        """Print the title."""
        self._console.print(f"\n[bold]{text}[/]\n")

    def remark(self, text: str) -> None:
        """Print a remark about the current step."""
        self._console.print(f"    [yellow]{text}[/]")

    @contextmanager
    def step(self, text: str, *, progress: bool = False) -> Iterator[SetDone]:
        """Show a step while the context is open, then its duration.

        Yield the function that sets how much of the step is done; it is needed for ``progress``.
        """
        columns = [SpinnerColumn(), TextColumn("{task.description}")]
        if progress:
            columns += [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
        columns.append(TimeElapsedColumn())
        begun = time.monotonic()
        is_hidden = not self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=is_hidden) as shown:
            task = shown.add_task(text, total=None)
            yield lambda done, total: shown.update(task, completed=done, total=total)
        seconds = time.monotonic() - begun
        self._console.print(f"  [green]✓[/] {text:{_WIDTH}}{seconds:6.1f} s")

    def checks(self, checks: list[Check]) -> None:
        """Show the expected and the found values."""
        table = Table("", "source", "Spark, from the log", "", box=None, padding=(0, 2))
        for column in table.columns[1:3]:
            column.justify = "right"
        for check in checks:
            mark = "[green]✓[/]" if check.holds else "[bold red]✗ wrong[/]"
            table.add_row(f"    {check.what}", f"{check.wanted:,}", f"{check.found:,}", mark)
        self._console.print(table)

    def result(self, text: str) -> None:
        """Print the main result."""
        self._console.print(f"\n  [bold]{text}[/]")

    def end(self, text: str) -> None:
        """Print the last text, and the total duration."""
        seconds = time.monotonic() - self._begun
        self._console.print(f"\n  {text}  [dim]({seconds:.0f} s in all)[/]\n", soft_wrap=True)
