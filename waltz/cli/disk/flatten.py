"""``waltz disk flatten``: go back from the engine ``wal`` to plain segment files. Writes files.

A storage with the engine ``wal`` writes to a write-ahead log first, and later to the segment files.
So the newest records may be in the log only. The engine ``files`` and Waltz 0.13.2 do not read the
log, and refuse a directory that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.disk.access import MetaDirectory, inspecting
from waltz.cli.fields import prints
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import Rendering, nested, record
from waltz.cli.running import Failed
from waltz_storage.core.errors import DirectoryRefused, DiskFailed, NoSpace
from waltz_storage.shell.flattening import FlattenResult, RefusedPartition, flatten

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Flattened:
    """The result for the storage in ``directory``.

    A transaction of the log is a list of changes to files. ``transactions`` is how many
    transactions of the log were written to the segment files. ``interrupted`` is whether the log
    ended with a transaction that a crash had interrupted. Such a transaction is dropped: its
    appends were never answered. ``refused`` are the partitions that a start of the storage would
    not serve.
    """

    directory: str
    transactions: int
    interrupted: bool
    refused: Annotated[
        tuple[RefusedPartition, ...],
        nested(RefusedPartition, "Partitions that a start does not serve"),
    ]


@app.command(
    "flatten",
    epilog=examples(
        "waltz disk flatten /var/lib/waltz",
        "waltz disk flatten /var/lib/waltz --meta /meta/waltz --wal /fast/waltz",
    ),
)
@prints(Flattened)
def flatten_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The storage's setting storage.directory.")
    ],
    meta: MetaDirectory = None,
    wal: Annotated[
        Path | None,
        typer.Option(
            "--wal", metavar="DIR", help="The storage's setting storage.wal.directory, if set."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Write the write-ahead log of a stopped storage to the segment files, and remove the log.

    Afterwards a storage with storage.engine: files, or Waltz 0.13.2, can use the directory. The
    storage may have crashed before. If the command fails or is interrupted, repeat it. The exit
    status is 1 if a start of the storage would not serve a partition.
    """
    with inspecting(directory) as place:
        if not place.whole:
            raise Failed(f"{directory} is a part of a storage: name its whole directory")
        try:
            result = flatten(place.root, meta, wal)
        except (DirectoryRefused, NoSpace, DiskFailed) as problem:
            raise Failed(f"{directory} is not flattened: {problem}") from problem
    show(output, render_result(place.root, result))
    if result.refused:
        raise typer.Exit(1)


def render_result(directory: Path, result: FlattenResult) -> Rendering:
    """Return the rendering of what was done."""
    flattened = Flattened(str(directory), result.transactions, result.interrupted, result.refused)
    return record("Flattened storage", flattened)
