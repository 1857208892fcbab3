"""Dotted names of settings, their environment variables, and values that several files share. Pure.

The variable of a setting is its name in capitals behind ``WALTZ_``, with an underscore for every
dot and before every capital letter: ``server.feedCacheSize`` is ``WALTZ_SERVER_FEED_CACHE_SIZE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

VARIABLE_PREFIX = "WALTZ_"
DEFAULT_ROOT = "/waltz"
"""The znode of a cluster when no other is named."""


def variable(name: str) -> str:
    """Return the environment variable of the setting ``name``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return VARIABLE_PREFIX + words.replace(".", "_").upper()


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
