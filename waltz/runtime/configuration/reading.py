"""Reads settings: a YAML file and environment variables in, checked values out. Touches one file.

Dotted keys and nested maps are equivalent in any split (spec/behaviour.md section 14). A key that
nobody knows is an error that suggests the nearest; one that 0.13.2 knows and this system has no use
for is accepted with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from waltz.runtime.configuration.keys import Key, Schema
from waltz.runtime.configuration.resolving import (
    Given,
    Resolved,
    flatten,
    from_environment,
    resolve,
)

log = logging.getLogger(__name__)

_YAML_SLIPS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ConfigError(ValueError):
    """The configuration cannot be used; the text names the file, the key and what to do."""


class _Loader(yaml.SafeLoader):
    """Refuses a map with the same key twice: YAML's own way is to take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(f"{key.value} is set twice, the second time in line {line}")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def look_up(schema: Schema, path: Path | None, environment: Mapping[str, str]) -> Resolved:
    """Return every setting with its value and origin, good or not.

    Without ``path`` everything comes from the environment. Raises ConfigError if the file cannot
    be read.
    """
    in_file = {} if path is None else _read_file(path)
    in_environment, warnings = from_environment(schema, environment)
    resolved = resolve(schema, (in_file, in_environment), None if path is None else str(path))
    return Resolved(resolved.settings, resolved.problems, (*warnings, *resolved.warnings))


def read_schema(
    schema: Schema, path: Path | None, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the value of every key; warnings go to the log.

    Raises ConfigError, whose text is the first problem and how to see the others.
    """
    resolved = look_up(schema, path, environment)
    for warning in resolved.warnings:
        log.warning("%s", warning)
    if resolved.problems:
        first, *others = resolved.problems
        more = ""
        if others:
            command = f"waltz config explain {schema.process} {path or ''}".rstrip()
            more = f" (and {len(others)} more: {command} shows them)"
        raise ConfigError(first + more)
    return resolved.values


def read_settings(
    path: Path, keys: Sequence[Key], meaningless: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values of ``keys`` in a file that belongs to no process; raises ConfigError."""
    resolved = look_up(Schema("", tuple(keys), meaningless), path, {})
    for warning in resolved.warnings:
        log.warning("%s", warning)
    if resolved.problems:
        raise ConfigError("; ".join(resolved.problems))
    return resolved.values


def _read_file(path: Path) -> dict[str, Given]:
    try:
        flat = flatten(_read_map(path))
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply: settings have a few levels") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return {name: Given(value, str(path)) for name, value in flat.items()}


def _read_map(path: Path) -> Mapping[str, Any]:
    try:
        tree = yaml.load(path.read_bytes(), _Loader)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    # Beside its own errors, the YAML library lets through what is raised for a value that only
    # looks like one of its types: a 13th month, or !!bool 5.
    except (yaml.YAMLError, *_YAML_SLIPS) as error:
        what = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML: {what}") from error
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path} must be a YAML map of settings")
    return tree
