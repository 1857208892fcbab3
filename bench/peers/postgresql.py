"""PostgreSQL as a peer: a primary and two standbys, of which one must flush. Starts processes.

``pgbench`` makes the load. A connection has one open transaction, so there is a connection for each
append that the clients keep open.
"""

from __future__ import annotations

import getpass
import os
import random
import re
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from typing_extensions import override

from bench.peers.measured import (
    Description,
    Measured,
    Peer,
    PeerLoad,
    PeerMissing,
    ReadRun,
    RunningPeer,
)
from bench.peers.postgresql_programs import find_program
from bench.peers.processes import Servers, free_ports, run_command, running_servers

_MAX_CONNECTIONS = 1_100
"""Enough for the shape with the most open appends (`RECORDS`): 1,000 clients with one each."""
_STANDBYS = ("s1", "s2")
_CONFIG = f"""
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = {_MAX_CONNECTIONS}
shared_buffers = 512MB
max_wal_size = 8GB
wal_level = replica
synchronous_commit = on
"""
_INSERT = "INSERT INTO log (data) VALUES (CAST(:data AS bytea));\n"
_INSERT_WITH_LOCK = """\\set lock :client_id + 1
WITH taken AS (
    UPDATE locks SET version = version + 1 WHERE id = :lock AND version = :seen RETURNING id
) INSERT INTO log (data) SELECT CAST(:data AS bytea) FROM taken;
\\set seen :seen + 1
"""
"""The row is inserted only if the writer's lock has the version that the writer knows.

Each connection of pgbench is a writer with a lock of its own, so no row is refused."""


class PostgreSql(Peer):
    """PostgreSQL with quorum commit."""

    @override
    async def describe(self) -> Description:
        # For example: postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
        printed = await run_command(_program("postgres"), "--version")
        return Description(
            "PostgreSQL",
            printed.split(") ")[-1].split(" (")[0].strip(),
            durability="the primary and 1 of 2 standbys have flushed the commit (ANY 1)",
            lock="a conditional update in the same statement",
        )

    @override
    @asynccontextmanager
    async def start(self) -> AsyncIterator[RunningPeer]:
        with tempfile.TemporaryDirectory(prefix="waltz-peers-") as directory:
            home, user = _make_home(Path(directory))
            # SIGINT makes each server end its connections and stop. The primary waits for its
            # standbys, which get the signal at the same time.
            async with running_servers(signal.SIGINT) as servers:
                running = _RunningPostgreSql(servers, home, user)
                await running.begin()
                yield running


class _RunningPostgreSql(RunningPeer):
    def __init__(self, servers: Servers, home: Path, user: str | None) -> None:
        self._servers = servers
        self._home = home
        self._user = user
        self._ports = free_ports(1 + len(_STANDBYS))

    async def begin(self) -> None:
        """Create and start the primary, then a copy of it for each standby."""
        primary = self._home / "primary"
        await self._run("initdb", "-D", primary, "-A", "trust", "-U", "postgres")
        with (primary / "postgresql.conf").open("a") as file:
            file.write(f"{_CONFIG}port = {self._ports[0]}\n")
        await self._serve(primary, self._ports[0])
        for name, port in zip(_STANDBYS, self._ports[1:], strict=True):
            home = self._home / name
            source = ("-h", "127.0.0.1", "-p", str(self._ports[0]), "-U", "postgres")
            await self._run("pg_basebackup", *source, "-D", home, "-X", "stream", "-c", "fast")
            upstream = f"host=127.0.0.1 port={self._ports[0]} user=postgres application_name={name}"
            with (home / "postgresql.conf").open("a") as file:
                file.write(f"port = {port}\nprimary_conninfo = '{upstream}'\n")
            (home / "standby.signal").touch()
            await self._serve(home, port)
        # From now on, a commit waits until one standby has flushed it.
        names = ", ".join(_STANDBYS)
        await self._sql(
            f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({names})'",
            "SELECT pg_reload_conf()",
        )

    @override
    async def append(self, load: PeerLoad) -> Measured:
        logs = self._home / "latencies"
        # The first run warms up. The code after the loop uses the values of the second one.
        for records in (load.records // 10, load.records):
            await self._create_tables()
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            before, client_before = self._servers.cpu_seconds(), _children_seconds()
            printed = await self._run_pgbench(load, records, logs)
        used = self._servers.cpu_seconds() - before
        client = _children_seconds() - client_before
        # The third field of a line is the latency in microseconds.
        latencies_ms = sorted(
            int(line.split()[2]) / 1000 for path in logs.iterdir() for line in path.open()
        )
        count = len(latencies_ms)
        rate = re.search(r"tps = ([\d.]+)", printed)
        assert rate is not None, printed
        committed = int(await self._sql("SELECT count(*) FROM log"))
        assert committed == count, f"{count} transactions, but {committed} rows"
        p50, p99 = latencies_ms[count // 2], latencies_ms[count * 99 // 100]
        seconds = committed / float(rate[1])
        return Measured(
            seconds=seconds,
            records=committed,
            p50_ms=p50,
            p99_ms=p99,
            client_seconds=client,
            server_seconds=used,
        )

    @override
    async def read(self, size: int, records: int) -> Mapping[str, ReadRun]:
        await self._create_tables()
        data = random.Random(7).randbytes(size).hex()
        await self._sql(
            f"INSERT INTO log (data) SELECT '\\x{data}' FROM generate_series(1, {records})",
            "VACUUM ANALYZE log",
        )
        copy = "COPY (SELECT id, data FROM log ORDER BY id) TO STDOUT (FORMAT binary)"
        # After this first read, the pages are in memory.
        await self._sql_to_nowhere(copy)
        before, client_before = self._servers.cpu_seconds(), _children_seconds()
        begun = time.perf_counter()
        await self._sql_to_nowhere(copy)
        seconds = time.perf_counter() - begun
        used = self._servers.cpu_seconds() - before
        client = _children_seconds() - client_before
        return {
            "binary COPY, by psql": ReadRun(
                seconds=seconds, records=records, client_seconds=client, server_seconds=used
            )
        }

    async def _run_pgbench(self, load: PeerLoad, records: int, logs: Path) -> str:
        """Append ``records`` records; write the latencies to files in the folder ``logs``.

        Return the output of pgbench.
        """
        script = self._home / "script.sql"
        script.write_text(_INSERT_WITH_LOCK if load.locks else _INSERT)
        connections = load.clients * load.window
        data = "\\x" + random.Random(7).randbytes(load.size).hex()
        return await run_command(
            *(_program("pgbench"), "--no-vacuum", "--protocol=prepared", f"--file={script}"),
            *(f"--client={connections}", f"--jobs={min(connections, 2)}"),
            f"--transactions={max(1, records // connections)}",
            *(f"--define=data={data}", "--define=seen=0", "--log", f"--log-prefix={logs}/log"),
            env=self._environment(),
        )

    async def _create_tables(self) -> None:
        """Begin with an empty log, and locks of version 0.

        PostgreSQL must not compress the records (``EXTERNAL``), as the other peers do not. The
        checkpoint is made now, so that the next run does not write the pages of the last one.
        """
        await self._sql(
            "DROP TABLE IF EXISTS log, locks",
            "CREATE TABLE log (id bigserial PRIMARY KEY, data bytea NOT NULL)",
            "ALTER TABLE log ALTER data SET STORAGE EXTERNAL",
            "CREATE TABLE locks (id int PRIMARY KEY, version bigint NOT NULL)",
            f"INSERT INTO locks SELECT id, 0 FROM generate_series(1, {_MAX_CONNECTIONS}) AS id",
            "VACUUM ANALYZE locks",
            "CHECKPOINT",
        )

    async def _serve(self, home: Path, port: int) -> None:
        log = home.with_suffix(".log")
        await self._servers.start(
            [_program("postgres"), "-D", home], port, log, user=self._user, cwd=self._home
        )

    async def _run(self, name: str, *arguments: str | Path) -> None:
        await run_command(_program(name), *arguments, user=self._user, cwd=self._home)

    async def _sql(self, *statements: str) -> str:
        """Run statements at the primary; return the output of the last one."""
        commands = [part for statement in statements for part in ("-c", statement)]
        printed = await run_command(_program("psql"), "-XAtq", *commands, env=self._environment())
        return printed.strip()

    async def _sql_to_nowhere(self, statement: str) -> None:
        """Run a statement at the primary; psql receives its output and throws it away."""
        await run_command(
            *(_program("psql"), "-XAtq", "-o", os.devnull, "-c", statement),
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        primary = {"PGHOST": "127.0.0.1", "PGPORT": str(self._ports[0]), "PGUSER": "postgres"}
        return {**os.environ, **primary, "PGDATABASE": "postgres"}


def _make_home(directory: Path) -> tuple[Path, str | None]:
    """Make the folder of the servers; return it, and the user that must run them.

    The user is None if it is the user of this process.
    """
    home = directory / "postgresql"
    home.mkdir()
    if os.getuid() != 0:
        return home, None
    user = "postgres"  # PostgreSQL refuses to run as root.
    directory.chmod(0o755)
    shutil.chown(home, user, user)
    return home, user


def _children_seconds() -> float:
    """Return the CPU time of the ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _program(name: str) -> Path:
    """Return the path of a program of PostgreSQL. Raises PeerMissing."""
    program = find_program(name)
    if program is None:
        raise PeerMissing(
            f"{getpass.getuser()} has no {name} on the PATH: install PostgreSQL 15 or later, with "
            "pgbench (Debian: postgresql)"
        )
    return program
