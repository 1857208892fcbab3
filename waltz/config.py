"""Reads configuration files: YAML in, checked and typed settings out. Touches one file.

Dotted keys and nested maps are equivalent in any split (behaviour.md section 14). A key that nobody
knows is an error that suggests the nearest; one that 0.13.2 knows and this system has no use for is
accepted with a warning.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from waltz.net.tls import TlsConfig

log = logging.getLogger(__name__)


class ConfigError(ValueError):
    """The configuration cannot be used; the text names the file, the key and what to do."""


class _Required:
    """Marks a key that has no default."""


REQUIRED = _Required()

_LARGEST = (1 << 63) - 1
_YAML_SLIPS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its dotted name, how its text is parsed, its default, what it means."""

    name: str
    parse: Callable[[Any], Any]
    default: Any = REQUIRED
    meaning: str = ""


def integer(value: Any) -> int:
    """Parse a whole number; YAML already made most of them ints."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("a whole number is wanted")
    number = int(value)
    if abs(number) > _LARGEST:
        raise ValueError(f"a whole number up to {_LARGEST} is wanted")
    return number


def positive(value: Any) -> int:
    """Parse a whole number above zero."""
    number = integer(value)
    if number <= 0:
        raise ValueError("a number above 0 is wanted")
    return number


def port(value: Any) -> int:
    """Parse a TCP port; 0 means any free one."""
    number = integer(value)
    if not 0 <= number <= 65535:
        raise ValueError("a port between 0 and 65535 is wanted")
    return number


def boolean(value: Any) -> bool:
    """Parse true or false."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("true or false is wanted")


def text(value: Any) -> str:
    """Parse a string that is not empty."""
    if value is None or not str(value).strip():
        raise ValueError("it must not be empty")
    return str(value)


def one_of(*choices: str) -> Callable[[Any], str]:
    """Return a parser that takes one of ``choices``."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)} is wanted")
        return str(value)

    return parse


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``tree`` with dotted keys only."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def read_settings(
    path: Path, keys: Sequence[Key], meaningless: Mapping[str, str]
) -> dict[str, Any]:
    """Return the value of every key: from the file, or its default.

    ``meaningless`` maps a key, or a prefix that ends in a dot, to why it has no effect here.
    Raises ConfigError.
    """
    try:
        flat = flatten(_read_map(path))
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply: settings have a few levels") from error
    return _check(path, flat, keys, meaningless)


def _read_map(path: Path) -> Mapping[str, Any]:
    try:
        tree = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
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


def _check(
    path: Path, flat: Mapping[str, Any], keys: Sequence[Key], meaningless: Mapping[str, str]
) -> dict[str, Any]:
    known = {key.name: key for key in keys}
    values = {key.name: key.default for key in keys}
    for name, raw in flat.items():
        key = known.get(name)
        if key is not None:
            try:
                values[name] = key.parse(raw)
            except (ValueError, TypeError) as error:
                raise ConfigError(f"{path}: {name} is {raw!r}: {error}") from error
            continue
        reason = next((why for k, why in meaningless.items() if _covers(k, name)), None)
        if reason is None:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{path}: unknown setting {name}{hint}")
        log.warning("%s: %s has no effect: %s", path, name, reason)
    missing = [name for name, value in values.items() if value is REQUIRED]
    if missing:
        raise ConfigError(f"{path}: {', '.join(missing)} must be set")
    return values


def _covers(key: str, name: str) -> bool:
    return name == key or (key.endswith(".") and name.startswith(key))


def tls_keys(prefix: str) -> tuple[Key, ...]:
    """Return the TLS settings below ``prefix`` (``server.tls.``, ``storage.tls.`` …)."""
    return (
        Key(f"{prefix}enabled", boolean, True, "secure every connection; off means plaintext"),
        Key(f"{prefix}certificate", Path, None, "PEM file to show; none: a self-signed one"),
        Key(f"{prefix}key", Path, None, "PEM file of the certificate's key"),
        Key(f"{prefix}ca", Path, None, "PEM file to verify peers with; none: any peer"),
        Key(f"{prefix}serverName", text, None, "name that dialed peers' certificates must bear"),
    )


def tls_config(values: Mapping[str, Any], prefix: str) -> TlsConfig:
    """Return the `TlsConfig` of the settings made by `tls_keys`."""
    return TlsConfig(
        enabled=values[f"{prefix}enabled"],
        certificate=values[f"{prefix}certificate"],
        key=values[f"{prefix}key"],
        ca=values[f"{prefix}ca"],
        server_name=values[f"{prefix}serverName"],
    )


KEY_STORES = (
    "Java key stores are not read here; convert them to PEM files and set *.tls.certificate, "
    "*.tls.key and *.tls.ca"
)
"""Why the ``*.ssl.*`` settings of 0.13.2 have no effect."""
