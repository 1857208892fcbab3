"""Check that modules have a header, and that it says "Pure" only if an import contract proves it.

A header is the docstring of a module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.repository import PRODUCT, Violation

_PURE = re.compile(r"\bPure\b")


def check_headers(root: Path, files: Iterable[str]) -> Iterator[Violation]:
    """Yield the modules of the product that have no header or a wrong header."""
    for name in files:
        if name.endswith(".py") and name.startswith(PRODUCT):
            yield from check_header(name, (root / name).read_text())


def check_header(name: str, source: str) -> Iterator[Violation]:
    """Yield the problems of one module's header."""
    header = ast.get_docstring(ast.parse(source))
    if not header:
        yield Violation(name, 1, "no header: say what the module is for and what it may touch")
    elif _PURE.search(header) and not is_pure_place(name):
        yield Violation(name, 1, "the header says Pure, but no import contract covers the module")


def is_pure_place(name: str) -> bool:
    """Whether the import contract of pyproject.toml covers the module at ``name``."""
    return name.startswith("waltz/protocol/") or "core" in Path(name).parts
