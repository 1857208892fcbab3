"""Run a separate PostgreSQL for tests, if it is installed. Touches processes and the disk.

It listens only on a Unix socket in its own directory. PostgreSQL refuses to run as root: if the
tests run as root, it runs as the user that its package creates.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine

from bench.peers.postgresql_programs import find_program

_SETTINGS = "-c fsync=off -c listen_addresses='' -c max_connections=50"


def programs() -> Path | None:
    """Return the folder with initdb and pg_ctl, None if PostgreSQL is not installed."""
    initdb = find_program("initdb")
    return None if initdb is None else initdb.parent


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """Run a PostgreSQL, and yield the URL of its database for SQLAlchemy.

    The test is skipped if PostgreSQL is not installed.
    """
    folder = programs()
    user = _user()
    if folder is None or user is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    place = Path(tempfile.mkdtemp(prefix="waltz-pg-"))
    try:
        os.chown(place, user.pw_uid, user.pw_gid)
        data = place / "data"

        def run(program: str, *arguments: str) -> None:
            # Only root can start a process as another user.
            run_as = user.pw_uid if os.geteuid() == 0 else None
            done = subprocess.run(
                [folder / program, *arguments],
                user=run_as,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=90,  # More than the 60 s after which pg_ctl itself gives up.
            )
            assert done.returncode == 0, f"{program}: {done.stderr}"

        run("initdb", "-D", str(data), "-U", "waltz", "-A", "trust", "--no-sync", "-E", "UTF8")
        options = f"-k {place} {_SETTINGS}"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(place / "log"), "-o", options, "start")
        try:
            yield f"postgresql+psycopg://waltz@/postgres?host={place}"
        finally:
            run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(place)


def emptied(url: str) -> Iterator[str]:
    """Yield ``url`` and drop every table of that database afterwards."""
    yield url
    engine = create_engine(url)
    left = MetaData()
    left.reflect(engine)
    left.drop_all(engine)
    engine.dispose()


def _user() -> pwd.struct_passwd | None:
    """Return the user that runs PostgreSQL, None if there is none."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None
