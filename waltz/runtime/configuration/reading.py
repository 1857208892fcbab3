"""Find the value, origin and problems of each setting. Touches files, the environment, the log.

An unknown setting is an error, which suggests the most similar known setting. A setting of Waltz
0.13.2 that has no effect here is accepted with a warning.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from waltz.runtime.configuration.settings import SettingKey, Settings, keys
from waltz.runtime.configuration.shared_tls import from_tls_variable
from waltz.runtime.configuration.sources import RawSetting, RawSettingSource, from_environment
from waltz.runtime.configuration.yaml_file import ConfigError, read_yaml
from waltz.runtime.core.setting_names import environment_variable

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The origin of a setting that neither the file nor the environment sets."""

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, its value and the value's origin.

    If the setting is not set, ``value`` is the default, which is None for a required setting. If
    the setting is set to something that cannot be converted, ``value`` is None, too.
    """

    key: SettingKey
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class SettingsReport(Generic[S]):
    """Every setting of a process, the problems, and warnings about settings without effect.

    ``config`` is the filled model, None if there are problems.
    """

    config: S | None
    settings: tuple[Setting, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def settings_report(
    model: type[S], path: Path | None, environment: Mapping[str, str]
) -> SettingsReport[S]:
    """Return every setting with its value and origin, and the problems of the settings.

    Without ``path``, all values come from the environment or are defaults. Raises ConfigError only
    if the file at ``path`` cannot be read as a YAML map of settings.
    """
    values = {} if path is None else read_yaml(path)
    in_file = {name: RawSetting(value, str(path)) for name, value in values.items()}
    problems: list[str] = []
    unknown: list[str] = []
    in_environment, warnings = from_environment(model, environment)
    try:
        # The variable of a setting overrides `WALTZ_TLS`.
        in_environment = from_tls_variable(model, environment) | in_environment
    except ConfigError as problem:
        problems.append(str(problem))
    # All values that are set, to look up their names and origins. ``sources`` below fill the model.
    raw = in_file | in_environment
    known = {key.name: key for key in keys(model)}
    # The values of the settings of Waltz 0.13.2 that are set, and that have no effect here.
    ignored: dict[str, Any] = {}
    for name in raw.keys() - known.keys():
        why = _why_without_effect(model, name)
        if why is None:
            unknown.append(f"{raw[name].origin}: {_unknown(name, known)}")
        else:
            ignored[name] = raw[name].value
            warnings.append(f"{raw[name].origin}: {name} has no effect: {why}")
    config = None
    reasons: dict[str, str] = {}
    try:
        # The first source that has a setting determines its value.
        sources = (RawSettingSource(model, in_environment), RawSettingSource(model, in_file))
        # A model of pydantic-settings takes its sources from this argument. The empty map means
        # that the model has no other arguments.
        arguments: dict[str, Any] = {"_build_sources": (sources, {})}
        config = model(**arguments)
    except ValidationError as error:
        reasons = _reasons(error)
        problems += _problems(reasons, raw, path)
    # Check combinations of values only if there is no other problem: a wrong value or a mistyped
    # name would often be the cause of a wrong combination, too.
    if config is not None and not problems and not unknown:
        where = path or "the environment"
        problems += (f"{where}: {problem}" for problem in config.problems(ignored))
    # A mistyped name may be the reason why a required setting is missing, so it comes first.
    all_problems = (*sorted(unknown), *sorted(problems))
    return SettingsReport(
        config=None if all_problems else config,
        settings=tuple(_setting(key, raw, reasons) for key in known.values()),
        problems=all_problems,
        warnings=tuple(sorted(warnings)),
    )


def read_settings(
    model: type[S], path: Path | None, environment: Mapping[str, str] = os.environ
) -> S:
    """Return the settings of the file at ``path`` and the environment; log the warnings.

    Raises ConfigError if there are problems. Its text has the first problem, and if there are more,
    the command that shows them all. For a model without the name of a process there is no such
    command, so the text has all problems.
    """
    report = settings_report(model, path, environment)
    for warning in report.warnings:
        log.warning("%s", warning)
    if report.config is not None:
        return report.config
    if not model.process:
        raise ConfigError("; ".join(report.problems))
    first, *others = report.problems
    more = ""
    if others:
        command = f"waltz config explain {model.process} {path or ''}".rstrip()
        more = f" (and {len(others)} more: {command} shows them)"
    raise ConfigError(first + more)


def _why_without_effect(model: type[Settings], name: str) -> str | None:
    """Return why the setting ``name`` is accepted and has no effect, None if it is unknown."""
    for key, why in model.without_effect.items():
        if name == key or (key.endswith(".") and name.startswith(key)):
            return why
    return None


def _unknown(name: str, known: Iterable[str]) -> str:
    """Return the problem that the setting ``name`` is not one of ``known``."""
    similar = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"unknown setting {name}{hint}"


def _reasons(error: ValidationError) -> dict[str, str]:
    """Return why the value of each setting in ``error`` cannot be used, by the setting's name.

    The reason of a required setting that is not set is "".
    """
    reasons: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        name = ".".join(map(str, detail["loc"]))
        # The error that a value type raised: ``msg`` would put other words before its text.
        reason = detail.get("ctx", {}).get("error", detail["msg"])
        reasons[name] = "" if detail["type"] == "missing" else str(reason)
    return reasons


def _problems(
    reasons: Mapping[str, str], raw: Mapping[str, RawSetting], path: Path | None
) -> Iterator[str]:
    """Yield one problem for each unusable value, and one for all missing settings together.

    ``reasons`` is the result of `_reasons`.
    """
    for name, reason in reasons.items():
        if reason:
            yield f"{raw[name].origin}: {name} is {raw[name].value!r}: {reason}"
    missing = [name for name, reason in reasons.items() if not reason]
    if missing:
        yield _missing(missing, path)


def _missing(names: Sequence[str], path: Path | None) -> str:
    """Return the problem that the settings ``names`` are required and not set."""
    if path is not None:
        return f"{path}: {', '.join(names)} must be set"
    variables = ", ".join(f"${environment_variable(name)}" for name in names)
    return f"without a settings file, {variables} must be set"


def _setting(key: SettingKey, raw: Mapping[str, RawSetting], unusable: Container[str]) -> Setting:
    """Return a setting. ``unusable`` contains the names of the settings with unusable values.

    ``raw`` has the values that are set, by the names of the settings.
    """
    raw_setting = raw.get(key.name)
    if raw_setting is None:
        return Setting(key, key.default, DEFAULT)
    value = None if key.name in unusable else key.value_type(raw_setting.value)
    return Setting(key, value, raw_setting.origin)
