"""Limit the number of lines of functions and modules, so that each is easy to read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.repository import PRODUCT, Violation

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 400


def check_sizes(root: Path, files: Iterable[str]) -> Iterator[Violation]:
    """Yield the modules and functions of the product that are too long."""
    for name in files:
        if name.endswith(".py") and name.startswith(PRODUCT):
            yield from check_source(name, (root / name).read_text())


def check_source(name: str, source: str) -> Iterator[Violation]:
    """Yield the functions of one module, and the module itself, that are too long."""
    lines = source.count("\n")
    if lines > MAX_MODULE_LINES:
        yield Violation(name, 1, f"module of {lines} lines; the limit is {MAX_MODULE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield Violation(
                    name,
                    node.lineno,
                    f"function {node.name} of {length} lines; the limit is {MAX_FUNCTION_LINES}",
                )
