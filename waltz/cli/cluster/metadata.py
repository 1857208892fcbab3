"""``waltz cluster metadata``: back up what ZooKeeper has of a cluster, and restore it.

Touches ZooKeeper, the network and disk. A restore creates the cluster from the backup, and then
rebuilds the metadata of its partitions like ``waltz cluster rescue``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from waltz.admin import back_up
from waltz.cli.cluster.rescue import AnswerSeconds, rebuild_metadata
from waltz.cli.cluster.rescue_rows import RescuedPartition
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.log.durable_files import written_durably
from waltz.cli.options import DryRun, Yes, examples
from waltz.cli.output import Format, Output, say, show
from waltz.cli.rows import record
from waltz.cli.running import open_cluster, run
from waltz.metadata.core.cluster_backup import (
    BadBackup,
    ClusterBackup,
    decode_backup,
    encode_backup,
)

app = typer.Typer(
    no_args_is_help=True, help="Save the contents of ZooKeeper to a file, and restore them."
)


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """A backup that was written to ``file``."""

    file: str
    name: str
    num_partitions: int


@app.command(
    "backup",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster metadata backup orders-metadata.json",
        "waltz cluster metadata backup orders-metadata.json -z zk-1:2181 -r /waltz/orders",
    ),
)
@prints(WrittenBackup)
def backup_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write or replace.")],
    output: Output = Format.TABLE,
) -> None:
    """Write the contents of ZooKeeper to a file, for waltz cluster metadata restore.

    The file has the key of the cluster, its storages and groups, the assignment of partitions, and
    the metadata of partitions. Write it after each change of the storages.
    """
    where = target(context)
    _check_replaceable(file)

    async def save() -> ClusterBackup:
        async with open_cluster(where) as cluster:
            backup = await back_up(cluster)
        _write_file(file, backup)
        return backup

    backup = run(save())
    if output is Format.TABLE:
        say(f"{file} has the metadata of {backup.num_partitions} partitions")
    else:
        written = WrittenBackup(str(file), backup.name, backup.num_partitions)
        show(output, record("", written))


@app.command(
    "restore",
    cls=ClusterCommand,
    epilog=examples(
        "waltz cluster metadata restore orders-metadata.json --dry-run",
        "waltz cluster metadata restore orders-metadata.json",
    ),
)
@prints(RescuedPartition, ResultForm.LIST)
def restore_command(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file that waltz cluster metadata backup wrote."),
    ],
    timeout: AnswerSeconds = 10.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Create a lost cluster from a backup, and rebuild its partitions from the storages.

    Start all storages first. The backup has the key of the cluster, its storages and the assignment
    of partitions; the storages decide the metadata of partitions, as in waltz cluster rescue. If
    the cluster is in ZooKeeper, only partitions whose metadata are empty change. Servers open the
    partitions afterwards. The exit status is 1 if a partition stays closed.

    The preferred partitions of servers are not restored. The commands that set them as in the
    backup are printed at the end.
    """
    backup = _read_backup(file)
    rebuild_metadata(target(context), backup, timeout, output, dry_run=dry_run, yes=yes)


def _check_replaceable(file: Path) -> None:
    """Raise a usage error if ``file`` exists and is not a regular file or a link to one.

    A backup replaces its file. So a device such as /dev/stdout would become a regular file.
    """
    if not file.name or os.path.isdir(file):
        raise typer.BadParameter(f"{file} is a directory: name a file in it")
    if os.path.exists(file) and not os.path.isfile(file):
        raise typer.BadParameter(f"{file} is not a regular file: name one, which will be replaced")


def _write_file(file: Path, backup: ClusterBackup) -> None:
    """Write or replace ``file``; an earlier backup in it stays until the new one is complete.

    If ``file`` is a symbolic link, the file that it names is written. Raises Failed. After an
    error, the file is unchanged or is the complete new backup.
    """
    # Not `Path.resolve`, which raises an error for a link that leads to itself.
    target_file = Path(os.path.realpath(file))
    with written_durably(target_file, f"{target_file.name}.partial") as partial:
        partial.write_text(encode_backup(backup))


def _read_backup(file: Path) -> ClusterBackup:
    """Return the backup in ``file``; a file that cannot be used is a usage error."""
    try:
        return decode_backup(file.read_text())
    except OSError as problem:
        raise typer.BadParameter(f"cannot read {file}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise typer.BadParameter(
            f"{file} cannot be used as a backup: it is not text; name a file that waltz cluster "
            "metadata backup wrote"
        ) from problem
    except BadBackup as problem:
        raise typer.BadParameter(f"{file} cannot be used as a backup: {problem}") from problem
