"""Read a YAML file of settings. Touches this file.

Dotted keys and nested maps are equivalent in any mixture: ``a.b.c: v`` is ``a: {b: {c: v}}``
(spec/behaviour.md section 14).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from waltz.runtime.core.setting_names import flatten

# Besides YAMLError, the YAML library raises errors of Python itself for an invalid value, such as a
# date in month 13, or !!bool 5.
_YAML_ERRORS = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class ConfigError(ValueError):
    """The configuration cannot be used. The text names the file or the setting, and the reason."""


class _Loader(yaml.SafeLoader):
    """Loads YAML, and rejects a map that has a key twice. PyYAML would use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen_keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen_keys:
                    line = key.start_mark.line + 1
                    raise ConfigError(f"{key.value} is set twice, the second time in line {line}")
                seen_keys.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the settings of the file at ``path``, by their dotted names; raises ConfigError."""
    try:
        return flatten(_read_map(path))
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply: settings have a few levels") from None
    except ConfigError:
        raise  # It is a ValueError, too, but its text names the file already.
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_map(path: Path) -> Mapping[str, Any]:
    """Return the YAML map in a file, empty for an empty file. Raises ConfigError."""
    try:
        tree = yaml.load(path.read_bytes(), _Loader)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except _YAML_ERRORS as error:
        raise ConfigError(f"{path} is not valid YAML: {_what_is_wrong(error)}") from None
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path} must be a YAML map of settings")
    return tree


def _what_is_wrong(error: Exception) -> str:
    """Return the text of an error of the YAML library on one line, with the place in the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        # The text of the library quotes the line with a mark below it, which needs several lines.
        mark = error.problem_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        return f"{reason} (line {mark.line + 1}, column {mark.column + 1})"
    return " ".join(str(error).split())
