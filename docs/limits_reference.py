"""Generate the reference page of fixed timeouts and limits.

They are the constants of the code that no setting changes. A constant is on the page if its name
says that it is a timeout or a limit (`_NAMES`). Reads the source files of the product.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[1]

_PARTS: Mapping[str, tuple[str, ...]] = {
    "Servers": ("services/server/waltz_server",),
    "Storages": ("services/storage/waltz_storage",),
    "Clients": ("waltz/client", "waltz/sync", "waltz/state"),
    "Connections": ("waltz/net",),
    "Metadata in ZooKeeper": ("waltz/metadata",),
    "Changes and checks of clusters": ("waltz/admin",),
    "Processes": ("waltz/runtime",),
    "Kubernetes operator": ("operator/waltz_operator",),
    "Spark": ("waltz/spark",),
}
"""The folders of each part of the product."""

_NAMES = re.compile(
    "SECONDS|_MS$|_S$|DAYS$|MAX|MOST|LEAST|LIMIT|ATTEMPTS|SHARE$|BATCH|IN_FLIGHT|AHEAD|BACKOFF|"
    "BACKLOG|CONFIRMATIONS|BEFORE|THREADS|LAG_|READS|FAILURES|RANGES|REASONS|STEP|BYTES|RECORDS|"
    "_PER_|_IDS$|ROOM|WEIGHT|SMOOTHING|SHOWN|BLOCKS$|APART|TOGETHER"
)
"""The names of constants that are timeouts or limits, except those that `_FORMATS` matches."""

_FORMATS = re.compile(
    "OFFSET|MASK|BITS|CHECKSUM_BYTES|HEAD_BYTES|HEADER_BYTES|ENTRY_BYTES|ID_BYTES|STRUCT_BYTES|"
    "(INT|LONG|TEXT|BODY|ROW|BLOCK|FILE|CRC)_BYTES|HEADER_BLOCKS$|OVERHEAD|SECONDS_PER_|_PER_SECOND|"
    "_A_DAY|LAST_|MILLI|_BYTES_OF_"
)
"""The names that match `_NAMES` and are no limits: parts of formats, and other numbers."""

_ABOUT = """\
These timeouts and limits are constants of the code. No setting changes them; timeouts and limits \
that can be set are on [another page](settings.md). They explain what a log line, a metric or a \
delay shows. The meaning is empty where the name says it."""


@dataclass(frozen=True, slots=True)
class _Constant:
    """A constant of a module; ``meaning`` is the text below it, empty if there is none."""

    name: str
    value: ast.expr
    meaning: str


def limits_page(made: str) -> str:
    """Return the page; ``made`` is the comment that says how it is made."""
    lines = ["# Fixed timeouts and limits", "", made, "", _ABOUT, ""]
    for part, folders in _PARTS.items():
        lines += [f"## {part}", "", "| Constant | Value | Meaning |", "|---|---|---|"]
        lines += [row for folder in folders for row in _rows(folder)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _rows(folder: str) -> Iterator[str]:
    """Yield a row for each timeout and limit in the modules of a folder."""
    # The folder that contains the package, so that module names begin with the package.
    top = _ROOT if folder.startswith("waltz/") else (_ROOT / folder).parent
    for path in sorted((_ROOT / folder).rglob("*.py")):
        module = ".".join(path.relative_to(top).with_suffix("").parts)
        constants = list(_constants(ast.parse(path.read_text())))
        values = {each.name: each.value for each in constants}
        for each in constants:
            value = _shown(each, values)
            if value is not None:
                yield f"| `{module}.{each.name}` | {value} | {_cell(each.meaning)} |"


def _constants(tree: ast.Module) -> Iterator[_Constant]:
    """Yield the constants of a module whose names say that they are timeouts or limits."""
    # The text about a constant is the statement after it.
    following = [*tree.body[1:], None]
    for statement, after in zip(tree.body, following, strict=True):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if _NAMES.search(name) and not _FORMATS.search(name):
            yield _Constant(name, value, _text(after))


def _text(statement: ast.stmt | None) -> str:
    """Return the first sentence of a statement that is a text; empty for any other statement."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            sentence = " ".join(text.split()).partition(". ")[0]
            return sentence.removesuffix(".") + "."
        case _:
            return ""


def _shown(constant: _Constant, values: Mapping[str, ast.expr]) -> str | None:
    """Return the value with its unit, None if the value is neither a number nor a `Backoff`.

    ``values`` has the constants of the same module, by which a `Backoff` may name its bounds.
    """
    match constant.value:
        case ast.Call(func=ast.Name(id="Backoff"), args=arguments, keywords=keywords):
            bounds = [*arguments, *(each.value for each in keywords)]
            return " to ".join(f"{ast.unparse(_resolved(each, values))} s" for each in bounds)
    number = _number(constant.value)
    if number is None:
        return None
    name = constant.name
    if "SECONDS" in name or name.endswith("_S"):
        return f"{number:g} s"
    if name.endswith("_MS"):
        return f"{number:g} ms"
    if name.endswith("DAYS"):
        return f"{number:g} days"
    if "BYTES" in name:
        return _bytes(int(number))
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def _resolved(value: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """Return the value of a constant that ``value`` names; otherwise ``value`` itself."""
    return values.get(value.id, value) if isinstance(value, ast.Name) else value


def _number(value: ast.expr) -> int | float | None:
    """Return the value of an expression of numbers, None if it is any other expression."""
    match value:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _number(left), _number(right)
            match operator, first, second:
                case ast.LShift(), int(), int():
                    return first << second
                case ast.Mult(), int() | float(), int() | float():
                    return first * second
                case ast.Sub(), int() | float(), int() | float():
                    return first - second
    return None


def _bytes(number: int) -> str:
    """Return a number of bytes in the largest unit of which it is a multiple."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size and number % size == 0:
            return f"{number // size} {unit}"
    return f"{number:,} bytes"


def _cell(text: str) -> str:
    """Return ``text`` in the form for one cell of a table, without underscores before names."""
    return re.sub(r"`_?(\w+)`(?!`)", r"`\1`", text.replace("``", "`")).replace("|", "\\|")
