"""``waltz top``: show a cluster live. Touches the terminal, ZooKeeper and the network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from waltz.admin.monitoring import Monitor
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, OutputFormat, as_yaml, show, tables
from waltz.cli.rows import Rendering
from waltz.cli.running import open_cluster, run
from waltz.cli.template import Template
from waltz.cli.top.rows import render_sample

app = typer.Typer()


@app.command(
    "top",
    cls=ClusterCommand,
    epilog=examples(
        "waltz top",
        "waltz top --interval 5",
        "waltz top --once -o json | jq '.partitions[].replicas[].lag'",
    ),
)
def top_command(
    context: typer.Context,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two samples.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show one sample, with the rates of one interval.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
    ] = 2.0,
    output: Output = Format.TABLE,
) -> None:
    """Show partitions, replicas, lag, rates and recoveries live, until Ctrl-C.

    Lag is the number of committed transactions that a replica lacks. A recovery is a new store
    session; recoveries are counted since the command started. With --output json, each sample is
    one line, except with --once.
    """
    where = target(context)

    async def watch(display: Callable[[Rendering], None]) -> None:
        async with (
            open_cluster(where) as cluster,
            Monitor(cluster, where.tls, timeout_seconds=timeout) as monitor,
        ):
            first = before = await monitor.sample()
            if not once:
                display(render_sample(first, None, first))
            while True:
                await asyncio.sleep(interval)
                now = await monitor.sample()
                display(render_sample(first, before, now))
                before = now
                if once:
                    return

    with contextlib.suppress(KeyboardInterrupt), _display(output, once=once) as display:
        run(watch(display), seconds=None)


@contextmanager
def _display(output: OutputFormat, *, once: bool) -> Iterator[Callable[[Rendering], None]]:
    """Yield a function that shows one sample; on a terminal it replaces the previous sample."""
    if once:
        yield lambda rendering: show(output, rendering)
    elif output is Format.TABLE and sys.stdout.isatty():
        with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
            yield lambda rendering: live.update(tables(rendering), refresh=True)
    else:
        yield lambda rendering: _print(output, rendering)


def _print(output: OutputFormat, rendering: Rendering) -> None:
    """Print one of many samples: as a line of JSON, a YAML document, or as one sample."""
    match output:
        case Format.JSON:
            print(json.dumps(rendering.value), flush=True)  # noqa: T201
        case Format.YAML:
            print("---\n" + as_yaml(rendering.value), end="", flush=True)  # noqa: T201
        case Format.TABLE | Template():
            show(output, rendering)
