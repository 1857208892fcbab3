"""How the result of ``waltz config`` is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from waltz.cli.rows import Rendering, Rows, as_value, column, listing
from waltz.runtime.configuration import DEFAULT, Setting, SettingsReport
from waltz.runtime.core.setting_names import environment_variable


def _shown_value(value: Any) -> str:
    """Return a value as a settings file has it; a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """One setting and its value; ``variable`` is the environment variable that sets it.

    ``origin`` says where the value comes from, such as the file. ``source`` is the text for this in
    the table: it is the origin, or "nowhere" for a setting that must be set and is not set.
    """

    name: Annotated[str, column("setting")]
    value: Annotated[Any, column(show=_shown_value)]
    origin: Annotated[str, column(in_table=False)]
    source: Annotated[str, column("from", in_json=False)]
    type: str
    required: Annotated[bool, column(in_table=False)]
    default: Annotated[Any, column(in_table=False)]
    shown_default: Annotated[str, column("default", in_json=False)]
    variable: Annotated[str, column(in_table=False)]
    meaning: str


class ProcessSettings(TypedDict):
    """The settings of a process.

    ``file`` is the settings file, None if none was given. ``problems`` are the reasons for which
    the process would reject its settings. ``warnings`` name settings that have no effect.
    """

    process: str
    file: str | None
    settings: list[ExplainedSetting]
    problems: list[str]
    warnings: list[str]


def render_settings(process: str, file: Path | None, report: SettingsReport[Any]) -> Rendering:
    """Return the rendering of ``report``: all settings of a process, problems, and warnings."""
    remarks = [
        *(("problem", problem) for problem in report.problems),
        *(("no effect", warning) for warning in report.warnings),
    ]
    settings = [_explained_setting(setting) for setting in report.settings]
    tables = [*listing(f"Settings of {process}", ExplainedSetting, settings).tables]
    if remarks:
        tables.append(Rows("Remarks", columns=("", ""), cells=remarks))
    value: ProcessSettings = {
        "process": process,
        "file": None if file is None else str(file),
        "settings": as_value(settings),
        "problems": list(report.problems),
        "warnings": list(report.warnings),
    }
    return Rendering(value, tuple(tables))


def _explained_setting(setting: Setting) -> ExplainedSetting:
    """Return the row of a setting."""
    key = setting.key
    # A required setting has no default. So the origin `DEFAULT` means that nothing sets it.
    is_absent = key.required and setting.origin == DEFAULT
    return ExplainedSetting(
        key.name,
        _plain(setting.value),
        setting.origin,
        source="nowhere" if is_absent else setting.origin,
        type=key.kind,
        required=key.required,
        default=_plain(key.default),
        shown_default="must be set" if key.required else _shown_value(key.default),
        variable=environment_variable(key.name),
        meaning=key.meaning,
    )


def _plain(value: Any) -> Any:
    """Return ``value`` in a form that JSON and YAML can represent."""
    return str(value) if isinstance(value, Path) else value
