"""How verbs about files find what a path names, and fail if they may not look. Touches disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.running import Failed, failing_clearly
from waltz_storage.inspect.stopped_storage import CannotInspect, Place, check_stopped, locate

Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A storage's directory, one of a partition in it, or a .seg file."
    ),
]


@contextmanager
def inspecting(path: Path) -> Iterator[Place]:
    """Find what ``path`` names, and have it untouched by a storage when it is looked at."""
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
