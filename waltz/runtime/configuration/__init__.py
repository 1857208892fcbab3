"""Settings: typed models that are filled from a YAML file and environment variables.

* `settings`: the base class of all models, built on pydantic-settings; the list of a model's keys
* `cluster`, `tls`, `zookeeper`: settings that several models have
* `yaml_file`: reads the YAML file to dotted names and values
* `sources`: reads environment variables, and warns about variables that have no effect
* `shared_tls`: reads ``WALTZ_TLS``, the variable that the command line and the library use, too
* `reading`: finds the value and origin of every setting, and the problems of the settings
* `key_stores`: the commands that convert Java key stores of Waltz 0.13.2, which are not read here
"""

from waltz.runtime.configuration.cluster import ClusterSettings
from waltz.runtime.configuration.reading import (
    DEFAULT,
    Setting,
    SettingsReport,
    read_settings,
    settings_report,
)
from waltz.runtime.configuration.settings import (
    File,
    Group,
    NotNegative,
    OptionalFile,
    OptionalNames,
    OptionalPort,
    OptionalText,
    Port,
    Positive,
    SettingKey,
    Settings,
    Switch,
    Text,
    group,
    keys,
    setting,
)
from waltz.runtime.configuration.tls import READS_PEM_FILES, TlsSettings
from waltz.runtime.configuration.yaml_file import ConfigError
from waltz.runtime.configuration.zookeeper import ZooKeeperSettings

__all__ = [
    "DEFAULT",
    "READS_PEM_FILES",
    "ClusterSettings",
    "ConfigError",
    "File",
    "Group",
    "NotNegative",
    "OptionalFile",
    "OptionalNames",
    "OptionalPort",
    "OptionalText",
    "Port",
    "Positive",
    "Setting",
    "SettingKey",
    "Settings",
    "SettingsReport",
    "Switch",
    "Text",
    "TlsSettings",
    "ZooKeeperSettings",
    "group",
    "keys",
    "read_settings",
    "setting",
    "settings_report",
]
