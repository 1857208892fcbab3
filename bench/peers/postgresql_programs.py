"""Find the installed programs of PostgreSQL. Touches the file system."""

from __future__ import annotations

import shutil
from pathlib import Path

_DEBIAN = Path("/usr/lib/postgresql")
"""The folder with a folder for each version that a package of Debian has installed."""


def find_program(name: str) -> Path | None:
    """Return the path of a program, None if it is not installed.

    A program on the PATH comes first. On the PATH, Debian has only wrappers for pgbench and psql,
    which start the right version. Any other program is the newest one in Debian's folders.
    """
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    # For example: /usr/lib/postgresql/15/bin/postgres
    versions = {int(path.parts[-3].split(".")[0]): path for path in _DEBIAN.glob(f"*/bin/{name}")}
    return versions[max(versions)] if versions else None
