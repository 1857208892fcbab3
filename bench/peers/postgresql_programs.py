"""Find the installed programs of PostgreSQL. Touches the file system."""

from __future__ import annotations

import shutil
from pathlib import Path

_DEBIAN = Path("/usr/lib/postgresql")
"""The folder with a folder for each version that a package of Debian has installed."""


def find_program(name: str) -> Path | None:
    """Return the path of a program, None if it is not installed.

    A program on the PATH comes first: the wrappers of Debian for pgbench and psql start the right
    version.
    """
    if found := shutil.which(name):
        return Path(found)
    # For example: /usr/lib/postgresql/15/bin/postgres
    versions = {int(path.parts[-3].split(".")[0]): path for path in _DEBIAN.glob(f"*/bin/{name}")}
    return versions[max(versions)] if versions else None
