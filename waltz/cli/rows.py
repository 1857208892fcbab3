"""What verbs show, before it is drawn or written: a value for scripts, tables for people. Pure.

The keys of the values are for scripts: they stay what they are. What each noun shows is in
`cluster_rows`, `storage_rows` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rows:
    """A table before it is drawn; cells are shown as text."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Shown:
    """One result in both forms."""

    value: Any
    tables: tuple[Rows, ...]


def pairs(title: str, value: Mapping[str, object]) -> Rows:
    """Return a table of names and values."""
    cells = [(name.replace("_", " "), word(content)) for name, content in value.items()]
    return Rows(title, ("", ""), cells)


def or_dash(value: object) -> object:
    """Return ``value``, or a dash where there is none."""
    return "-" if value is None else value


def word(value: object) -> object:
    """Return ``value`` as people write it: yes, no, or a dash for nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return or_dash(value)
