"""Redirect the output of Java from the terminal to a file. Touches file descriptors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def redirect_java_output(path: Path) -> Iterator[None]:
    """Redirect standard error to ``path`` while the context is open.

    Java, which Spark starts meanwhile, keeps the file as its standard error also after that. So its
    log does not appear between the lines of the demo. In the context, Python's warnings are not
    shown.
    """
    sys.stderr.flush()
    terminal = os.dup(2)  # File descriptor 2 is standard error.
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
