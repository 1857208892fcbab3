"""The version of the installed distribution. Touches its metadata."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def build_version() -> str | None:
    """Return the installed version of this software, None when it is not installed."""
    try:
        return version("waltz-log")
    except PackageNotFoundError:
        return None
