"""Checks that the files a path names can be read, for all verbs of ``waltz disk``. Reads files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.running import Failed, failing_clearly
from waltz_storage.inspect.places import CannotInspect, Place, check_stopped, locate

Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A storage's directory, one of a partition in it, or a .seg file."
    ),
]


@contextmanager
def inspecting(path: Path) -> Iterator[Place]:
    """Find what ``path`` names; fail if a storage is running on it or it cannot be read."""
    with failing_clearly():
        try:
            place = locate(path)
            check_stopped(place.root)
            yield place
        except CannotInspect as problem:
            raise Failed(str(problem)) from problem
        except OSError as problem:
            if problem.filename is None:
                raise
            raise Failed(f"cannot read {problem.filename}: {problem.strerror}") from problem
