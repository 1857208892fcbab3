"""Find tests that replace the clock or the sleep of the whole process.

A worker of pytest has threads that are not the test's, such as those of the gateway of Spark: they
would use the replacement too. A loop with a pause then runs without one, and what a test records is
not only its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.repository import Violation

_REPLACED = re.compile(r"""setattr\(\s*(["'](?:[\w.]+\.)?time\.\w+["']|time\s*,)""")


def check_patches(root: Path, files: Iterable[str]) -> Iterator[Violation]:
    """Yield the places in tests that replace a function of the module ``time``."""
    for name in files:
        if name.startswith("tests/") and name.endswith(".py"):
            yield from check_patch(name, (root / name).read_text())


def check_patch(name: str, source: str) -> Iterator[Violation]:
    """Yield the places in one file that replace a function of the module ``time``."""
    for found in _REPLACED.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        yield Violation(name, line, "replaces the clock of the whole process: pass one in instead")
