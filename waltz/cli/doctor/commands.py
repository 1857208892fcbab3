"""``waltz doctor``: say what is wrong with a cluster. Touches ZooKeeper and the network."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from waltz.admin.core.health import MIN_DISK_FREE
from waltz.admin.diagnosis import diagnose
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.doctor.rows import Diagnosis, diagnosis, text_lines
from waltz.cli.fields import prints
from waltz.cli.local_names import local_names
from waltz.cli.options import MinDiskFree, examples
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import Rendering, as_value
from waltz.cli.running import open_cluster, run

app = typer.Typer()


@app.command(
    "doctor",
    cls=ClusterCommand,
    epilog=examples(
        "waltz doctor",
        "waltz doctor --timeout 5",
        "waltz doctor -o json | jq -r '.problems[].command'",
    ),
)
@prints(Diagnosis)
def doctor_command(
    context: typer.Context,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
    ] = 3.0,
    min_disk_free: MinDiskFree = MIN_DISK_FREE,
    output: Output = Format.TABLE,
) -> None:
    """Say what is wrong with the cluster, since when, and which command comes next.

    Works with any number of dead processes, and without ZooKeeper. Changes nothing. The exit status
    is 1 if something is wrong.
    """
    where = target(context)
    # A session with ZooKeeper needs several answers. So its limit is longer than that of one
    # answer, and at least a second.
    health = run(
        diagnose(
            partial(open_cluster, where, connect_seconds=timeout * 2 + 1),
            where.zookeeper,
            where.tls,
            timeout_seconds=timeout,
            min_disk_free=min_disk_free,
            access=where.access,
        ),
        seconds=None,  # `diagnose` has its own limit, which grows with the timeout.
    )
    result = diagnosis(health, local_names(where), where.typed_options)
    if output is Format.TABLE:
        _print(result)
    else:
        show(output, Rendering(as_value(result), ()))
    if result.problems:
        raise typer.Exit(1)


def _print(result: Diagnosis) -> None:
    """Print the result for people."""
    # Not as a table: a command that is wrapped in a cell cannot be copied.
    for line in text_lines(result):
        print(line)  # noqa: T201
