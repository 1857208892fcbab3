"""Which value every setting has, and where it came from. Pure.

The environment counts before the file, the file before the default. A setting's variable is its
name in capitals behind ``WALTZ_``, with an underscore for every dot and before every capital
letter: ``server.feedCacheSize`` is ``WALTZ_SERVER_FEED_CACHE_SIZE``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waltz.runtime.configuration.keys import REQUIRED, Key, Schema

DEFAULT = "default"
"""The origin of a value that nobody has set."""

_PREFIX = "WALTZ_"
_NEAR = 0.85
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT_\d+_\w+$")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where: a file's path or ``$VARIABLE``."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with the value it has; REQUIRED if it has none or a bad one."""

    key: Key
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every setting of a process, with sentences about what is wrong and what has no effect."""

    settings: tuple[Setting, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def values(self) -> dict[str, Any]:
        """The settings' values by name."""
        return {setting.key.name: setting.value for setting in self.settings}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``tree`` with dotted keys only; raises ValueError if two of them are the same."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        inner = flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        twice = flat.keys() & inner.keys()
        if twice:
            raise ValueError(f"{min(twice)} is set twice")
        flat |= inner
    return flat


def variable(name: str) -> str:
    """Return the environment variable of the setting ``name``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return _PREFIX + words.replace(".", "_").upper()


def from_environment(
    schema: Schema, environment: Mapping[str, str]
) -> tuple[dict[str, Given], list[str]]:
    """Return what the environment sets, and warnings about what looks as if it were meant to.

    An empty variable is one that is not set. What Kubernetes puts into the environment of a pod for
    every service is not meant: with a service called waltz-server that is a WALTZ_SERVER_PORT.
    """
    names = {variable(key.name): key.name for key in schema.keys}
    given: dict[str, Given] = {}
    warnings = []
    for found, value in sorted(environment.items()):
        if not found.startswith(_PREFIX) or not value:
            continue
        if found not in names:
            warnings += _about_unknown(found, names, schema.process)
        elif _SERVICE_ADDRESS.match(value):
            warnings.append(
                f"${found} is not used: {value} is what Kubernetes says about a service of that "
                "name; call the service differently, or set enableServiceLinks: false in the pod"
            )
        else:
            given[names[found]] = Given(value, f"${found}")
    return given, warnings


def resolve(
    schema: Schema, sources: Sequence[Mapping[str, Given]], file: str | None = None
) -> Resolved:
    """Return every setting: its value in the last of ``sources`` that has it, or its default.

    ``file`` is where settings that are missing, or do not fit together, are looked for.
    """
    given: dict[str, Given] = {}
    for source in sources:
        given |= source
    problems: list[str] = []
    warnings: list[str] = []
    ignored: dict[str, Any] = {}
    known = {key.name: key for key in schema.keys}
    for name in given.keys() - known.keys():
        why = schema.why_meaningless(name)
        if why is None:
            problems.append(f"{given[name].origin}: {_unknown(name, known)}")
        else:
            ignored[name] = given[name].value
            warnings.append(f"{given[name].origin}: {name} has no effect: {why}")
    settings = tuple(_settle(key, given.get(key.name), problems) for key in schema.keys)
    missing = [s.key.name for s in settings if s.value is REQUIRED and s.key.name not in given]
    if missing:
        problems.append(_missing(missing, file))
    if not problems:
        where = file or "the environment"
        values = {setting.key.name: setting.value for setting in settings}
        problems += (f"{where}: {problem}" for problem in schema.problems(values, ignored))
    return Resolved(settings, tuple(sorted(problems)), tuple(sorted(warnings)))


def _settle(key: Key, given: Given | None, problems: list[str]) -> Setting:
    if given is None:
        return Setting(key, key.default, DEFAULT)
    try:
        return Setting(key, key.parse(given.value), given.origin)
    except (ValueError, TypeError) as error:
        problems.append(f"{given.origin}: {key.name} is {given.value!r}: {error}")
        return Setting(key, REQUIRED, given.origin)


def _missing(names: Sequence[str], file: str | None) -> str:
    if file is not None:
        return f"{file}: {', '.join(names)} must be set"
    variables = ", ".join(f"${variable(name)}" for name in names)
    return f"without a settings file, {variables} must be set"


def _unknown(name: str, known: Mapping[str, Key]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown setting {name}{hint}"


def _about_unknown(found: str, names: Mapping[str, str], process: str) -> list[str]:
    name, separator, _ = found.removeprefix(_PREFIX).partition("_")
    if not separator or _SERVICE_LINK.search(found):
        return []
    space = f"{_PREFIX}{name}_"
    alike = [known for known in names if known.startswith(space)]
    near = difflib.get_close_matches(found, alike, n=1, cutoff=_NEAR)
    if near:
        return [f"${found} is not used: there is no such setting; did you mean {near[0]}?"]
    if name == process.upper():
        return [f"${found} is not used: there is no such setting"]
    return []
