"""``waltz log import``: append the transactions in files to a log.

Touches disk, ZooKeeper and the network. `import_sources` reads the files, `importing` appends their
rows, and `import_record` records the import, so that a repeated run continues it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.client_access import high_water_marks, open_client
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.log.exclusive import exclusive
from waltz.cli.log.import_record import ImportRecord, PartitionImport
from waltz.cli.log.import_sources import Source, check_ids, find_sources
from waltz.cli.log.importing import Importer
from waltz.cli.log.rows import ImportCounts, ImportedPartition, render_import
from waltz.cli.options import DryRun, examples, partitions_of
from waltz.cli.output import Format, Output, show
from waltz.cli.progress import Advance, progress
from waltz.cli.running import Failed, open_cluster, run

app = typer.Typer()

_PARTITIONS_AT_ONCE = 64
"""To how many partitions rows are appended at once.

The rows of each are read from a file that is open meanwhile, and often a process may have no more
than 1024 open files.
"""


@app.command(
    "import",
    cls=ClusterCommand,
    epilog=examples(
        "waltz log import /backup/orders",
        "waltz log import /backup/orders --partitions 3 --to 0",
        "waltz log import events.jsonl --to 0 --dry-run",
    ),
)
@prints(ImportedPartition, ResultForm.LIST)
def import_command(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="The directory of an export, or a .jsonl or .parquet file."
        ),
    ],
    partitions: Annotated[
        str | None,
        typer.Option("--partitions", "-p", metavar="RANGES", help="Import only these partitions."),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option(min=0, help="Append to this partition instead of the original one."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="The file that records the import, so that it can be continued. Default: a file "
            "beside PATH."
        ),
    ] = None,
    new_ids: Annotated[
        bool, typer.Option("--new-ids", help="Import into an empty log even if ids change.")
    ] = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Append the transactions in files to a log, in the order of each partition.

    After an interruption, the same command continues with the transactions that are not in the log
    yet. Data and headers are kept. Ids are kept if the log is empty; otherwise the transactions get
    new ids after the end of the log.
    """
    where, wanted = target(context), partitions_of(partitions)

    async def work() -> dict[int, ImportCounts]:
        sources = find_sources(path, wanted, to)
        async with open_cluster(where) as cluster:
            key = (await cluster.store_params()).key
        record_file = record or default_record_file(path, key)
        # Two runs at the same time would not know each other's client ids (`import_record`), and
        # both would append the same rows.
        with exclusive(path):
            import_record = ImportRecord.read(record_file, key)
            return await _import(
                where, sources, import_record, record_file, new_ids=new_ids, dry_run=dry_run
            )

    show(output, render_import(run(work(), seconds=None), dry_run=dry_run))


def default_record_file(path: Path, key: uuid.UUID) -> Path:
    """Return the file beside ``path`` that records its import into the cluster with ``key``.

    The key is a UUID that a cluster gets when it is created. It is in the name of the file, so that
    the same files can be imported into several clusters, each import with a record of its own.

    ``.``, ``..`` and symbolic links in ``path`` are resolved. Otherwise a run that gets the same
    files by another path would find no record, and append every transaction again.
    """
    resolved = path.resolve()
    return resolved.with_name(f"{resolved.name}.import-{key}.json")


async def _import(
    where: Target,
    sources: list[Source],
    import_record: ImportRecord,
    record_file: Path,
    *,
    new_ids: bool,
    dry_run: bool,
) -> dict[int, ImportCounts]:
    """Append the transactions that earlier runs have not appended; return the counts by partition.

    Adds this run to ``import_record``, and writes the record to ``record_file`` before the first
    append. A dry run appends and writes nothing, and returns what a real run would append.

    Raises BadArchive; Failed if ``import_record`` does not fit ``sources``; WaltzError.
    """
    async with open_client(where) as client:
        marks = await high_water_marks(client, [source.target for source in sources])
        for partition, mark in marks.items():
            # The first run records where the log ends. Every run adds its client id, because later
            # runs recognize its appends by this id.
            recorded = import_record.partitions.setdefault(partition, PartitionImport(mark))
            recorded.client_ids.append(client.client_id)
        if not new_ids:
            check_ids(sources, import_record)
        if not dry_run:
            import_record.write(record_file)
        importers: dict[int, Importer] = {}
        imported_before: dict[int, int] = {}  # How many transactions earlier runs appended.
        for source in sources:
            partition, mark = source.target, marks[source.target]
            recorded = import_record.partitions[partition]
            importer = Importer(client, partition, recorded.client_ids, mark)
            importers[partition] = importer
            imported_before[partition] = await importer.count_imported(
                recorded.end_before, mark, source.rows()
            )
        num_missing = {
            source.target: source.count - imported_before[source.target] for source in sources
        }
        if any(count < 0 for count in num_missing.values()):
            raise Failed(
                f"the log has more transactions of this import than the files; {record_file} may "
                "be the record of an import of other files"
            )
        if not dry_run:
            with progress("imported", sum(num_missing.values())) as advance:
                await _append_missing(sources, importers, imported_before, advance)
    return {
        partition: ImportCounts(before=imported_before[partition], now=count)
        for partition, count in num_missing.items()
    }


async def _append_missing(
    sources: Iterable[Source],
    importers: Mapping[int, Importer],
    imported_before: Mapping[int, int],
    advance: Advance,
) -> None:
    """Append the rows of ``sources`` that earlier runs have not appended.

    ``importers`` and ``imported_before``, the number of rows to leave out, are by partition. Raises
    Failed, WaltzError.
    """
    slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

    async def append(source: Source) -> None:
        async with slots:
            missing_rows = islice(source.rows(), imported_before[source.target], None)
            await importers[source.target].append(missing_rows, advance)

    await asyncio.gather(*map(append, sources))
