"""Settings: typed, checked, from a YAML file and environment variables.

* `keys`: what a setting is, and the types of values
* `resolving`: which value each setting has, where it came from, what is wrong
* `reading`: the file and the environment; what the processes call
* `processes`: settings that several kinds of processes have
* `tls`: the settings of TLS, and what to do with the key stores of 0.13.2
"""

from waltz.runtime.configuration.keys import (
    REQUIRED,
    Key,
    Kind,
    Schema,
    boolean,
    file,
    integer,
    one_of,
    port,
    positive,
    text,
)
from waltz.runtime.configuration.processes import cluster_keys, endpoint_keys
from waltz.runtime.configuration.reading import ConfigError, look_up, read_schema, read_settings
from waltz.runtime.configuration.resolving import Resolved, Setting, flatten, variable
from waltz.runtime.configuration.tls import (
    KEY_STORES,
    listening_tls_keys,
    tls_config,
    tls_keys,
    tls_problems,
)

__all__ = [
    "KEY_STORES",
    "REQUIRED",
    "ConfigError",
    "Key",
    "Kind",
    "Resolved",
    "Schema",
    "Setting",
    "boolean",
    "cluster_keys",
    "endpoint_keys",
    "file",
    "flatten",
    "integer",
    "listening_tls_keys",
    "look_up",
    "one_of",
    "port",
    "positive",
    "read_schema",
    "read_settings",
    "text",
    "tls_config",
    "tls_keys",
    "tls_problems",
    "variable",
]
