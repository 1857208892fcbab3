"""Dotted names of settings, and the names of their environment variables. Pure.

The variable of a setting is ``WALTZ_`` and the setting's name in capitals, with an underscore for
every dot and before every capital letter that follows a lower-case letter or a digit. For example,
``server.feedCacheSize`` is ``WALTZ_SERVER_FEED_CACHE_SIZE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

VARIABLE_PREFIX = "WALTZ_"
DEFAULT_ROOT = "/waltz"
"""The root znode of a cluster, if the user names no other."""

ACCESS_VARIABLE = "WALTZ_ACCESS"
"""The variable that says which addresses of servers and storages are dialed: ``inside`` or
``outside``."""
SHARED_VARIABLES = {
    "WALTZ_ZOOKEEPER": "zookeeper.connectString",
    "WALTZ_ROOT": "cluster.root",
    ACCESS_VARIABLE: "client.access",
}
"""The variables that the command line and the library read themselves, and the setting that each
variable sets in a settings file that has this setting. The variable of the setting itself (see
`environment_variable`) overrides the shared one."""
COMMAND_VARIABLES = ("WALTZ_CLUSTER", "WALTZ_PROFILE")
"""The variables that name the cluster only for the command line and the library. Servers and
storages ignore them: a user's file or profile must not move a process to another cluster."""
TLS_VARIABLE = "WALTZ_TLS"
"""The variable for TLS of the command line, the library and the processes: ``on``, ``off`` or the
path of a file. It sets several settings. The variable of a single setting overrides it."""


def environment_variable(name: str) -> str:
    """Return the environment variable of the setting ``name``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return VARIABLE_PREFIX + words.replace(".", "_").upper()


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return ``tree`` as one map, in which nested keys are joined by dots.

    Raises ValueError if two keys become the same.
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        inner = flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        twice = flat.keys() & inner.keys()
        if twice:
            raise ValueError(f"{min(twice)} is set twice")
        flat |= inner
    return flat
