"""Find the files of a stopped storage that a path names, for all verbs of ``waltz disk``.

Reads files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.running import Failed, exit_on_expected_error
from waltz_storage.inspect.places import CannotInspect, Place, check_stopped, locate

Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="The directory of a storage, the directory of a partition in it, or a .seg file.",
    ),
]
MetaDirectory = Annotated[
    Path | None,
    typer.Option(
        "--meta", metavar="DIR", help="The storage's setting storage.metaDirectory, if set."
    ),
]


@contextmanager
def inspecting(path: Path) -> Iterator[Place]:
    """Yield the storage, partition or segment that ``path`` names.

    If a running storage uses the files, the error is printed as one line, and the verb ends with
    status 1. The same happens if the block cannot read a file, or raises another expected error.
    """
    with exit_on_expected_error():
        try:
            place = locate(path)
            check_stopped(place.root)
            yield place
        except CannotInspect as problem:
            raise Failed(str(problem)) from problem
        except OSError as problem:
            if problem.filename is None:  # The error is not about a file.
                raise
            raise Failed(f"cannot read {problem.filename}: {problem.strerror}") from problem
