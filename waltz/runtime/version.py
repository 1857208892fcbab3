"""The version of the installed software. Touches the metadata of the installed package."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def build_version() -> str | None:
    """Return the version of the installed package, None if this code runs without installation."""
    try:
        return version("waltz-log")
    except PackageNotFoundError:
        return None
