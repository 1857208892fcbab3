"""The tables and values that ``waltz config`` shows. Touches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waltz.cli.rows import Rows, Shown
from waltz.runtime.configuration import DEFAULT, Resolved, Setting
from waltz.runtime.core.setting_names import variable

_COLUMNS = ("setting", "value", "from", "type", "default", "meaning")


def explained(process: str, file: Path | None, resolved: Resolved[Any]) -> Shown:
    """Return every setting of a process, and what is wrong with them."""
    remarks = [
        *(("problem", problem) for problem in resolved.problems),
        *(("no effect", warning) for warning in resolved.warnings),
    ]
    tables = [Rows(f"Settings of {process}", _COLUMNS, [_row(s) for s in resolved.settings])]
    if remarks:
        tables.append(Rows("Remarks", ("", ""), remarks))
    value = {
        "process": process,
        "file": None if file is None else str(file),
        "settings": [_value(setting) for setting in resolved.settings],
        "problems": list(resolved.problems),
        "warnings": list(resolved.warnings),
    }
    return Shown(value, tuple(tables))


def _row(setting: Setting) -> tuple[str, ...]:
    key = setting.key
    default = "must be set" if key.required else _written(key.default)
    return (
        key.name,
        _written(setting.value),
        "nowhere" if key.required and setting.origin == DEFAULT else setting.origin,
        key.kind,
        default,
        key.meaning,
    )


def _value(setting: Setting) -> dict[str, Any]:
    key = setting.key
    return {
        "name": key.name,
        "value": _plain(setting.value),
        "origin": setting.origin,
        "type": key.kind,
        "required": key.required,
        "default": _plain(key.default),
        "variable": variable(key.name),
        "meaning": key.meaning,
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _written(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
