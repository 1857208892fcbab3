"""The TLS settings that ``WALTZ_TLS`` sets. Reads the file that the variable names.

The variable is that of the command line and the library: ``on``, ``off``, or the path of a YAML
file with the keys of `TlsSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from waltz.runtime.configuration.settings import Settings, keys
from waltz.runtime.configuration.sources import RawSetting
from waltz.runtime.configuration.yaml_file import ConfigError, read_yaml
from waltz.runtime.core.setting_names import TLS_VARIABLE


def from_tls_variable(
    model: type[Settings], environment: Mapping[str, str]
) -> dict[str, RawSetting]:
    """Return the settings below ``PROCESS.tls`` that the variable sets, by their dotted names.

    ``on`` and ``off`` set only ``PROCESS.tls.enabled``. A file turns TLS on, unless the file itself
    sets ``enabled``: a user who names certificates wants TLS. The variable changes no other
    settings: if ``on`` dropped a certificate authority, every peer would be accepted.

    The result is empty if the variable is not set, or if the model has no such settings. The model
    of the command line has none, because the command line has an option for the variable.

    Raises ConfigError if the value is neither on, off nor the path of a YAML file.
    """
    value = environment.get(TLS_VARIABLE)
    prefix = f"{model.process}.tls."
    enabled = f"{prefix}enabled"
    if not value or all(key.name != enabled for key in keys(model)):
        return {}
    match value.lower():
        case "on":
            return {enabled: RawSetting(True, f"${TLS_VARIABLE}")}
        case "off":
            return {enabled: RawSetting(False, f"${TLS_VARIABLE}")}
    try:
        content = read_yaml(Path(value))
    except ConfigError as problem:
        raise ConfigError(f"${TLS_VARIABLE} must be on, off or a file: {problem}") from None
    origin = f"{value} of ${TLS_VARIABLE}"
    in_file = {f"{prefix}{name}": RawSetting(raw, origin) for name, raw in content.items()}
    return {enabled: RawSetting(True, origin)} | in_file
