"""The names that ``waltz local`` gives to the processes of a cluster, such as ``server/0``.

Touches ``cluster.json`` and ZooKeeper. The number in the name of a server is not its id in
ZooKeeper. So the name of a process is found by the process's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from waltz.admin.core.health import ProcessKind
from waltz.cli.cluster_options import Target, named_cluster
from waltz.cli.rows import Rendering, Rows
from waltz.cli.running import open_cluster
from waltz.local import NotRunning, read_description
from waltz.metadata.cluster import NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.store import StoreError
from waltz.runtime.cluster_file import local_command


@dataclass(frozen=True, slots=True)
class LocalNames:
    """The processes of the local cluster in ``directory``.

    ``names`` has the name of each process, by address. A name is the kind of the process and a
    number, such as ``storage/1``, or it is ``zookeeper``. ``ended`` has the processes that do not
    run: by name, the time at which the process ended, in seconds since 1970. The time is None if it
    is unknown, or if the process has never run.

    If the cluster is not a local one, ``directory`` is None, and there are no names.
    """

    directory: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, float | None] = field(default_factory=dict)

    def start_command(self, address: str | None) -> str | None:
        """Return the command that starts the process at ``address``.

        None if there is no local process at ``address``, or if the process runs: its start would
        change nothing.
        """
        name = None if address is None else self.names.get(address)
        return self._command("start", name) if name in self.ended else None

    def remedy_if_hanging(self, address: str | None) -> tuple[str, str] | None:
        """Return the remedy for the process at ``address``, which does not answer, if it runs.

        The remedy has two texts. The first is a sentence that names the commands of a restart. The
        second is the command that shows the log; the last words of the sentence introduce it. None
        if there is no local process at ``address``, or if the process does not run.
        """
        name = None if address is None else self.names.get(address)
        if name is None or name in self.ended:
            return None
        logs, kill, start = (self._command(verb, name) for verb in ("logs", "kill", "start"))
        if logs is None:
            return None
        return f"{name} runs. Restart it with {kill} and {start}. To see its log before", logs

    def start_missing_command(self, kind: ProcessKind | None) -> str | None:
        """Return the command that starts a process of ``kind`` that does not run.

        None if ``kind`` is None, or if all processes of this kind run.
        """
        if kind is None:
            return None
        name = next((name for name in self.ended if name.startswith(f"{kind}/")), None)
        return None if name is None else self._command("start", name)

    def ended_at(self, address: str) -> float | None:
        """Return when the process at ``address`` ended; None if it runs, or the time is unknown."""
        return self.ended.get(self.names.get(address, ""))

    def missing_since(self, kind: ProcessKind) -> float | None:
        """Return the time since which too few processes of ``kind`` run.

        None if enough of them run, or if the time is unknown. One server is enough. Of the storages
        a majority is needed, because each storage of a local cluster has a replica of each
        partition.
        """
        num_processes = sum(name.startswith(f"{kind}/") for name in self.names.values())
        end_times = [at for name, at in self.ended.items() if name.startswith(f"{kind}/")]
        known_times = sorted(at for at in end_times if at is not None)
        if len(known_times) < len(end_times):
            return None  # A process whose end is unknown may have ended before all others.
        # The smallest number of ended processes with which too few processes are left.
        if kind is ProcessKind.SERVER:
            num_too_many = num_processes
        else:
            num_too_many = num_processes - num_processes // 2
        if num_too_many == 0 or len(known_times) < num_too_many:
            return None
        return known_times[num_too_many - 1]

    def name_processes(
        self, rendering: Rendering, members: Mapping[int, ServerDescriptor]
    ) -> Rendering:
        """Return ``rendering`` with the name of a process after its address or id in all tables.

        An id is in a cell as ``server 3``. ``members`` has the servers by their ids. The value for
        scripts is unchanged.
        """
        if not self.names:
            return rendering
        server_names = {
            f"server {server}": self.names[member.address]
            for server, member in members.items()
            if member.address in self.names
        }
        name_of_text = {**self.names, **server_names}
        alternatives = "|".join(map(re.escape, sorted(name_of_text, key=len, reverse=True)))
        # An address or id that is a part of a longer one does not match.
        address_or_id = re.compile(rf"(?<![\w.:])(?:{alternatives})(?!\w)")

        def add_names(cell: object) -> object:
            if not isinstance(cell, str):
                return cell
            return address_or_id.sub(lambda match: f"{match[0]} ({name_of_text[match[0]]})", cell)

        tables = tuple(
            Rows(rows.title, rows.columns, [tuple(map(add_names, row)) for row in rows.cells])
            for rows in rendering.tables
        )
        return replace(rendering, tables=tables)

    def _command(self, verb: str, name: str | None) -> str | None:
        """Return the command ``waltz local VERB`` for the process ``name``.

        None if ``name`` is None, or if the cluster is not a local one.
        """
        if self.directory is None or name is None:
            return None
        return local_command(self.directory, verb, name)


NO_NAMES = LocalNames()
"""The names of a cluster that is not a local one."""

_BAD_DESCRIPTION = (NotRunning, ValueError, KeyError, TypeError, AttributeError)
"""Errors of a ``cluster.json`` that is missing, or that another version of Waltz has written.

These errors are ignored: verbs also work without the names.
"""


def local_names(where: Target) -> LocalNames:
    """Return the names of the processes of a local cluster; `NO_NAMES` for other clusters.

    If its ``cluster.json`` cannot be used, a local cluster has no names.
    """
    if where.local_directory is None:
        return NO_NAMES
    with contextlib.suppress(*_BAD_DESCRIPTION):
        processes = read_description(where.local_directory)["processes"]
        names = {str(process["address"]): name for name, process in processes.items()}
        ended = {
            name: process.get("ended_at")
            for name, process in processes.items()
            if process["pid"] is None
        }
        return LocalNames(where.local_directory, names, ended)
    return LocalNames(where.local_directory)


def local_http_addresses(where: Target) -> list[str]:
    """Return the HTTP addresses of the processes of a local cluster.

    There are none for other clusters, and if ``cluster.json`` cannot be used.
    """
    if where.local_directory is None:
        return []
    with contextlib.suppress(*_BAD_DESCRIPTION):
        processes = read_description(where.local_directory)["processes"].values()
        return [
            f"{process['address'].rpartition(':')[0]}:{process['http_port']}"
            for process in processes
            if "http_port" in process
        ]
    return []


async def server_ids(directory: Path, seconds: float) -> dict[str, int]:
    """Return the ids of the servers of the local cluster in ``directory``, by address.

    There are none if ZooKeeper does not answer in time, or has no readable cluster. The session
    with ZooKeeper may take ``seconds``; session and query together may take twice as long.
    """
    with contextlib.suppress(StoreError, NoCluster, MalformedMetadata, TimeoutError):
        where = named_cluster(cluster=directory)
        async with (
            asyncio.timeout(seconds * 2),
            open_cluster(where, connect_seconds=seconds) as cluster,
        ):
            members = (await cluster.membership()).servers()
            return {member.address: server for server, member in members.items()}
    return {}
