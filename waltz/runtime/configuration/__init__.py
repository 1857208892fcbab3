"""Settings: typed models, filled from a YAML file and environment variables.

* `settings`: the base class of all models, built on pydantic-settings; the keys of a model
* `cluster`, `tls`: settings that several models have
* `sources`: what the file and the environment set, and warnings about variables that have no effect
* `yaml_file`: the YAML file as dotted names and values
* `reading`: the value and origin of every setting, and the problems of them
* `key_stores`: how to convert the Java key stores of 0.13.2, which are not read
"""

from waltz.runtime.configuration.cluster import ClusterSettings
from waltz.runtime.configuration.reading import DEFAULT, Resolved, Setting, look_up, read
from waltz.runtime.configuration.settings import (
    File,
    Group,
    Key,
    OptionalFile,
    OptionalPort,
    OptionalText,
    Port,
    Positive,
    Settings,
    Switch,
    Text,
    group,
    keys,
    setting,
)
from waltz.runtime.configuration.tls import KEY_STORES, ListeningTlsSettings, TlsSettings
from waltz.runtime.configuration.yaml_file import ConfigError

__all__ = [
    "DEFAULT",
    "KEY_STORES",
    "ClusterSettings",
    "ConfigError",
    "File",
    "Group",
    "Key",
    "ListeningTlsSettings",
    "OptionalFile",
    "OptionalPort",
    "OptionalText",
    "Port",
    "Positive",
    "Resolved",
    "Setting",
    "Settings",
    "Switch",
    "Text",
    "TlsSettings",
    "group",
    "keys",
    "look_up",
    "read",
    "setting",
]
