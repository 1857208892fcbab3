"""``waltz debug``: write a bundle, an archive for the analysis of a fault.

Touches files, ZooKeeper, and the ports of servers and storages. `waltz.admin.debug_bundle` collects
the state of the cluster. This module adds logs, settings files and versions.
"""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from waltz.admin.core.secrets import environment_without_secrets, without_secrets
from waltz.admin.debug_bundle import Bundle, BundleCollector
from waltz.admin.process_versions import Version, query_versions, storage_versions
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.fields import prints
from waltz.cli.local_names import local_http_addresses
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, say, show
from waltz.cli.rows import record
from waltz.cli.running import Failed, exit_on_expected_error, open_cluster, run
from waltz.local import ClusterLayout
from waltz.metadata.core.storage_maps import is_address
from waltz.runtime.version import build_version

app = typer.Typer(no_args_is_help=True, help="Collect what is needed to understand a fault.")

_MAX_FILE_BYTES = 16 << 20
"""How much of the end of each log or settings file is collected."""


@dataclass(frozen=True, slots=True)
class WrittenBundle:
    """A bundle that was written to ``file``.

    ``files`` are the names of the files in it, ``missing`` the reasons for which parts are missing.
    """

    file: str
    files: tuple[str, ...]
    missing: tuple[str, ...]


@app.command(
    "bundle",
    cls=ClusterCommand,
    epilog=examples(
        "waltz debug bundle",
        "waltz debug bundle fault.tar.gz",
        "waltz debug bundle --log server.log --settings server.yml",
    ),
)
@prints(WrittenBundle)
def bundle_command(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Default: waltz-debug-TIME.tar.gz here."),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A log to add: its last 16 MiB. May be repeated."),
    ] = None,
    settings: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A settings file to add. May be repeated."),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The HTTP port of a server or storage, whose version is added. May be repeated.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
    ] = 5.0,
    output: Output = Format.TABLE,
) -> None:
    """Collect states, znodes, versions, logs and settings of the cluster into one archive.

    Works with dead processes, and without ZooKeeper: errors.txt in the archive names what is
    missing. Passwords, tokens and private keys are removed, and records of the log are never
    collected. Logs, settings and versions of servers are collected from a local cluster, and from
    the files and ports that the options name.
    """
    where = target(context)
    path = file or Path(f"waltz-debug-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    _check_input(path, http or [])
    if where.tls is not None:
        with exit_on_expected_error():
            # An unusable file is an error here. Otherwise each part of the bundle would be missing.
            where.tls.dialing_context()
    logs, settings_files = _files_to_add(where, log or [], settings or [])
    collector = _collector(where, timeout)
    run(collector.collect(), seconds=None)
    files, errors = dict(collector.files), list(collector.errors)
    for kind, paths in (("logs", logs), ("settings", settings_files)):
        for name, source in paths.items():
            try:
                files[f"{kind}/{name}"] = _end_of(source)
            except OSError as problem:
                errors.append(f"{source}: {problem.strerror}")
    http_addresses = [*local_http_addresses(where), *(http or [])]
    queried_versions = run(
        query_versions(where.zookeeper, http_addresses, timeout_seconds=timeout), seconds=None
    )
    # The collector has no metrics of storages if ZooKeeper does not answer.
    storage_metrics = json.loads(files.get("storage-metrics.json", b"{}"))
    versions = {**storage_versions(storage_metrics), **queried_versions}
    files["versions.json"] = _versions_file(where, versions)
    if errors:
        files["errors.txt"] = "".join(f"{error}\n" for error in errors).encode()
    with exit_on_expected_error():
        _write(path, files)
    if output is Format.TABLE:
        missing = f"; {len(errors)} parts are missing, see errors.txt in it" if errors else ""
        say(f"{path} has {len(files)} files{missing}")
    else:
        show(output, record("", WrittenBundle(str(path), tuple(sorted(files)), tuple(errors))))


def _collector(where: Target, timeout: float) -> BundleCollector:
    """Return the collector of a bundle; a process has ``timeout`` seconds for each answer."""
    # A session with ZooKeeper needs several answers. So its limit is longer than that of one
    # answer, and at least a second (as in ``waltz doctor``).
    return BundleCollector(
        partial(open_cluster, where, connect_seconds=timeout * 2 + 1),
        where.zookeeper,
        where.tls,
        timeout_seconds=timeout,
        access=where.access,
    )


def _check_input(path: Path, http: list[str]) -> None:
    """Raise a usage error if the archive cannot be written to ``path``, or ``http`` is malformed.

    Checked before anything is collected, because collecting may take a while.
    """
    if path.exists():
        raise typer.BadParameter(f"{path} exists already: name another file")
    if not path.parent.is_dir():
        raise typer.BadParameter(
            f"cannot write {path}: there is no directory {path.parent}; make it, or name another"
        )
    for address in http:
        if not is_address(address):
            raise typer.BadParameter(f"--http is {address!r}: it must be HOST:PORT")


def _files_to_add(
    where: Target, logs: list[Path], settings: list[Path]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the logs and the settings files to add, by the names that they get in the archive."""
    if where.local_directory is not None:
        layout = ClusterLayout(where.local_directory.absolute())
        # Servers and storages have a common folder of logs, and one of settings. A path for any
        # name, such as x, shows the folder. The log of ZooKeeper is in another folder.
        logs = [*sorted(layout.log("x").parent.glob("*.log")), layout.log("zookeeper"), *logs]
        settings = [*sorted(layout.config("x").parent.glob("*.yml")), *settings]
    return _by_name(logs), _by_name(settings)


def _by_name(paths: list[Path]) -> dict[str, Path]:
    """Return the paths by file name; if a name occurs again, a number from 2 on is added to it."""
    by_name: dict[str, Path] = {}
    for path in paths:
        name, number = path.name, 1
        while name in by_name:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        by_name[name] = path
    return by_name


def _end_of(path: Path) -> bytes:
    """Return the last `_MAX_FILE_BYTES` of a text file, from a whole line on, without secrets."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MAX_FILE_BYTES))
        content = file.read(_MAX_FILE_BYTES)
    if size > _MAX_FILE_BYTES:
        content = content.partition(b"\n")[2]  # Drops the line whose beginning is missing.
    return without_secrets(content.decode(errors="replace")).encode()


def _versions_file(where: Target, processes: Mapping[str, Version]) -> bytes:
    """Return a JSON text: the versions of this program and of the cluster's processes.

    It also has the time, the cluster as the command line names it, and the environment variables of
    Waltz without secrets.
    """
    value = {
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "waltz": build_version(),
        "python": sys.version,
        "platform": platform.platform(),
        "zookeeper": where.zookeeper,
        "root": where.root,
        "tls": None if where.tls is None else where.tls.enabled,
        "access": where.access,
        "processes": dict(processes),
        "environment": environment_without_secrets(os.environ, "WALTZ_"),
    }
    return json.dumps(value, indent=2).encode() + b"\n"


def _write(path: Path, files: Bundle) -> None:
    """Write the archive; its files are in a directory that has its name. Raises Failed."""
    try:
        # The archive shows the state of a cluster, so only the user may read the file.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as raw:
            try:
                _write_archive(raw, path.name.removesuffix(".gz").removesuffix(".tar"), files)
                raw.flush()
            except BaseException:
                path.unlink()  # Otherwise the same command would be refused: the file exists.
                raise
    except OSError as problem:
        raise Failed(f"cannot write {path}: {problem.strerror}") from problem


def _write_archive(raw: BinaryIO, directory: str, files: Bundle) -> None:
    """Write an archive with ``files`` in the directory ``directory`` to ``raw``. Raises OSError."""
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{directory}/{name}")
            entry.size = len(content)
            entry.mtime = int(time.time())
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(content))
