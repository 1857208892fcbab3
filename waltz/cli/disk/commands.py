"""``waltz disk``: show and check the files of a stopped storage.

Only ``waltz disk flatten`` writes files.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.deserializer import find_deserializer
from waltz.cli.disk import export as disk_export
from waltz.cli.disk import flatten as disk_flatten
from waltz.cli.disk import rows as disk_rows
from waltz.cli.disk import values as disk_values
from waltz.cli.disk import wal as disk_wal
from waltz.cli.disk.access import MetaDirectory, Where, inspecting
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import examples, parse_argument, partitions_of
from waltz.cli.output import Format, Output, show
from waltz.cli.running import Failed
from waltz.protocol.notation import parse_ids
from waltz_storage.inspect.control_reading import check_complete, read_control
from waltz_storage.inspect.places import segments_at
from waltz_storage.inspect.segment_check import FileRecord
from waltz_storage.inspect.segment_reading import (
    check_segment_files,
    is_sound,
    read_segment_header,
    read_whole_records,
)
from waltz_storage.inspect.start_rehearsal import try_starts

app = typer.Typer(
    no_args_is_help=True,
    help="Inspect the files of a stopped storage. Only flatten changes them.",
)
app.add_typer(disk_export.app)
app.add_typer(disk_wal.app)
app.add_typer(disk_flatten.app)

Segment = Annotated[Path, typer.Argument(metavar="FILE.seg", help="A segment's data file.")]
Ids = Annotated[
    str | None,
    typer.Option(
        "--transaction",
        "-t",
        metavar="FIRST[-[LAST]]",
        help="Show only these transaction ids. Default: all.",
    ),
]


@app.command(
    "verify",
    epilog=examples(
        "waltz disk verify /var/lib/waltz",
        "waltz disk verify /var/lib/waltz/3 -o json",
        "waltz disk verify /var/lib/waltz/3/0000000000000000000.seg -t 17",
    ),
)
@prints(disk_values.VerifiedFiles)
def verify_command(
    path: Where,
    transaction: Ids = None,
    meta: MetaDirectory = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of flaws to show in the table.")
    ] = 100,
    output: Output = Format.TABLE,
) -> None:
    """Check every record and its index entry, and show what a start of the storage would do.

    The exit status is 1 if anything is damaged, or if a start would refuse a partition.
    """
    ids = None if transaction is None else parse_argument(parse_ids, transaction)
    with inspecting(path) as place:
        reports = {
            (partition, first_id): check_segment_files(place.root, partition, first_id)
            for partition, first_id in segments_at(place)
        }
        outcomes = try_starts(place, meta)
    show(output, disk_rows.render_verification(reports, outcomes, ids, limit))
    would_serve_all = all(outcome.sound for outcome in outcomes.values())
    if not is_sound(reports.values()) or not would_serve_all:
        raise typer.Exit(1)


@app.command(
    "stat",
    epilog=examples(
        "waltz disk stat /var/lib/waltz",
        "waltz disk stat /var/lib/waltz/3/0000000000000000000.seg -o json",
    ),
)
@prints(disk_rows.DataSizes, ResultForm.LIST)
def stat_command(path: Where, meta: MetaDirectory = None, output: Output = Format.TABLE) -> None:
    """Count the records of segments, and show how large their data are.

    Damaged records are left out: waltz disk verify shows them.
    """
    with inspecting(path) as place:
        # Raises an error if the last records are only in a write-ahead log. Otherwise they would be
        # missing from the result without a message.
        check_complete(place.root, meta)
        sizes = {
            (partition, first_id): [
                len(file_record.record.data)
                for file_record in read_whole_records(place.root, partition, first_id)
            ]
            for partition, first_id in segments_at(place)
        }
    show(output, disk_rows.render_data_sizes(sizes))


@app.command(
    "dump",
    epilog=examples(
        "waltz disk dump /var/lib/waltz/3/0000000000000000000.seg --metadata",
        "waltz disk dump /var/lib/waltz/3/0000000000000000000.seg -t 17-19",
        "waltz disk dump /var/lib/waltz/3/0000000000000000000.seg --data text -o json",
        "waltz disk dump /var/lib/waltz/3/0000000000000000000.seg -d waltz:JsonSerializer",
    ),
)
@prints(disk_values.DumpedSegment)
def dump_command(
    path: Segment,
    metadata: Annotated[
        bool, typer.Option("--metadata", "-m", help="Show the header of the file.")
    ] = False,
    records: Annotated[bool, typer.Option("--records", "-r", help="Show the records.")] = False,
    transaction: Ids = None,
    data: Annotated[
        disk_rows.DataForm, typer.Option(help="How to show the data of records.")
    ] = disk_rows.DataForm.HEX,
    serializer: Annotated[
        str | None,
        typer.Option(
            "--serializer",
            "-d",
            metavar="MODULE:NAME",
            help="Show the data decoded by this serializer. The module is imported.",
        ),
    ] = None,
    meta: MetaDirectory = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of records to show.")
    ] = 1000,
    output: Output = Format.TABLE,
) -> None:
    """Show the header and the records of a segment; --metadata or --records shows only one part.

    Damaged records are left out: waltz disk verify shows them.
    """
    # With neither option, and with both, both parts are shown.
    show_header = metadata or not records
    show_records = records or not metadata
    first_wanted = 0
    last_wanted: int | None = None  # There is no last one.
    if transaction is not None:
        first_wanted, last_wanted = parse_argument(parse_ids, transaction)
    deserialize = None if serializer is None else parse_argument(find_deserializer, serializer)
    with inspecting(path) as place:
        check_complete(place.root, meta)  # As in `stat_command`.
        if place.first_id is None:
            raise Failed(f"{path} is not a segment; name a file that ends in .seg")
        (partition,) = place.partitions
        # Also read if it is not shown, because this raises an error if the file is not a segment.
        header = read_segment_header(place.root, partition, place.first_id)
        shown_records: list[FileRecord] | None = None
        if show_records:
            wanted = (
                file_record
                for file_record in read_whole_records(place.root, partition, place.first_id)
                if file_record.record.transaction_id >= first_wanted
                and (last_wanted is None or file_record.record.transaction_id <= last_wanted)
            )
            shown_records = list(islice(wanted, limit))
    if data is disk_rows.DataForm.HEX and output is not Format.TABLE:
        data = disk_rows.DataForm.NONE  # The value for scripts has the data in base64 already.
    shown_header = header if show_header else None
    show(output, disk_rows.render_segment(shown_header, shown_records, data, deserialize))


@app.command(
    "control",
    epilog=examples(
        "waltz disk control /var/lib/waltz",
        "waltz disk control /var/lib/waltz/waltz-storage.ctl --partition 0-6 --assigned",
    ),
)
@prints(disk_rows.ControlFileContent)
def control_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A control file, its directory, or the directory of the storage."
        ),
    ],
    partition: Annotated[
        str | None,
        typer.Option("--partition", "-p", metavar="RANGES", help="Such as 0-6,7. Default: all."),
    ] = None,
    assigned: Annotated[
        bool,
        typer.Option(
            "--assigned", "-a", help="Show only assigned partitions, and damaged entries."
        ),
    ] = False,
    meta: MetaDirectory = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a control file: its cluster, and every partition's store session and marks.

    The exit status is 1 if one of the shown entries is damaged.
    """
    wanted = partitions_of(partition)
    with inspecting(path) as place:
        control = read_control(place.root, meta)
    rendering = disk_rows.render_control_file(control, wanted, only_assigned=assigned)
    show(output, rendering)
    if any(entry["problem"] for entry in rendering.value["entries"]):
        raise typer.Exit(1)
