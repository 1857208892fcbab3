"""Values of settings as a source of pydantic-settings, and values from environment variables.

Touches nothing: the caller passes the environment. The environment takes precedence over the file,
and the file over the default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from waltz.runtime.configuration.settings import Settings, group_of, keys
from waltz.runtime.core.setting_names import (
    COMMAND_VARIABLES,
    SHARED_VARIABLES,
    VARIABLE_PREFIX,
    environment_variable,
)

_SIMILAR = 0.85
"""How similar an unknown variable must be to a known one, from 0 to 1, to suggest the known one."""

_PROCESSES = ("server", "storage")
"""The processes that serve one cluster and have no profiles (`Settings.process`)."""

# Kubernetes adds variables for every service. Most are recognised by their names; the one that may
# have the name of a setting, such as WALTZ_SERVER_PORT, is recognised by its value.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT_\d+_\w+$")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class RawSetting:
    """A value that is not converted yet, and its origin: a file's path or ``$VARIABLE``."""

    value: Any
    origin: str


class RawSettingSource(PydanticBaseSettingsSource):
    """A source of pydantic-settings that has values by their dotted names.

    The sources of pydantic-settings itself cannot be used. Its source for the environment does not
    find ``serverName`` of a nested model in ``..._SERVER_NAME``. Its source for YAML does not split
    dotted names, and does not reject a name that is set twice.
    """

    def __init__(self, model: type[Settings], raw: Mapping[str, RawSetting]) -> None:
        super().__init__(model)
        self._values = _nested(model, raw)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return a field's value (None if it is not set), its alias, and False.

        False means that pydantic-settings must not decode the value as JSON.
        """
        name = str(field.validation_alias)
        return self._values.get(name), name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values; the values of a group are in a nested map."""
        return self._values


def _nested(
    model: type[BaseModel], raw: Mapping[str, RawSetting], prefix: str = ""
) -> dict[str, Any]:
    """Return the values of ``raw`` for the fields of ``model``, by the aliases of the fields.

    The values of a group are a nested map. ``prefix`` begins the dotted names of the settings of
    ``model``.
    """
    values: dict[str, Any] = {}
    for field in model.model_fields.values():
        alias = str(field.validation_alias)
        name, members = f"{prefix}{alias}", group_of(field)
        if members is not None:
            values[alias] = _nested(members, raw, f"{name}.")
        elif name in raw:
            values[alias] = raw[name].value
    return values


def from_environment(
    model: type[Settings], environment: Mapping[str, str]
) -> tuple[dict[str, RawSetting], list[str]]:
    """Return the values of the environment, and warnings about variables that have no effect.

    An empty variable counts as not set. Kubernetes adds variables for every service to the
    environment of a pod, for example WALTZ_SERVER_PORT for a service called waltz-server. These
    variables have no effect.
    """
    known = {key.name for key in keys(model)}
    shared = {variable: name for variable, name in SHARED_VARIABLES.items() if name in known}
    name_of = shared | {environment_variable(name): name for name in known}
    raw: dict[str, RawSetting] = {}
    warnings = []
    # The shared variables come first, so that the variable of the setting itself overrides them.
    shared_first = sorted(environment.keys() & shared.keys())
    shared_first += sorted(environment.keys() - shared.keys())
    for variable in shared_first:
        value = environment[variable]
        if not variable.startswith(VARIABLE_PREFIX) or not value:
            continue
        if variable in COMMAND_VARIABLES and model.process in _PROCESSES:
            warnings.append(
                f"${variable} has no effect: a {model.process} ignores it; to name the cluster, "
                "set $WALTZ_ZOOKEEPER and $WALTZ_ROOT, or zookeeper.connectString and cluster.root"
            )
        elif variable not in name_of:
            warnings += _unknown_variable(variable, name_of.keys(), model.process)
        elif _SERVICE_ADDRESS.match(value):
            warnings.append(
                f"${variable} has no effect: {value} is the address that Kubernetes gives for a "
                "service of that name; rename the service, or set enableServiceLinks: false in "
                "the pod"
            )
        else:
            raw[name_of[variable]] = RawSetting(value, f"${variable}")
    return raw, warnings


def _unknown_variable(variable: str, known: Iterable[str], process: str) -> list[str]:
    """Return a list with a warning about ``variable``, which is none of the ``known`` variables.

    The list is empty if ``variable`` seems to belong to Kubernetes or to another program.
    """
    first_word, separator, _ = variable.removeprefix(VARIABLE_PREFIX).partition("_")
    # The variable of a setting has at least two words after WALTZ_.
    if not separator or _SERVICE_LINK.search(variable):
        return []
    same_prefix = [each for each in known if each.startswith(f"{VARIABLE_PREFIX}{first_word}_")]
    similar = difflib.get_close_matches(variable, same_prefix, n=1, cutoff=_SIMILAR)
    if similar:
        return [f"${variable} has no effect: unknown setting; did you mean {similar[0]}?"]
    # With another first word, the variable may belong to another program.
    if first_word == process.upper():
        return [f"${variable} has no effect: unknown setting"]
    return []
