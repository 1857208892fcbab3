"""``waltz top``: show a cluster live. Touches the terminal, ZooKeeper and the network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from waltz.admin.core.sample import Sample
from waltz.admin.monitoring import Monitor
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import prints
from waltz.cli.local_names import LocalNames, local_names
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, OutputFormat, as_yaml, say, show, tables
from waltz.cli.rows import Rendering, Rows
from waltz.cli.running import Failed, network_of, open_cluster, run, tls_of
from waltz.cli.template import Template
from waltz.cli.top.rows import WatchedCluster, render_sample
from waltz.metadata.cluster import NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.store import StoreError

app = typer.Typer()

Display = Callable[[Rendering, str | None], None]
"""Shows a sample and None; or, if no newer sample could be taken, the last one and the reason."""


@app.command(
    "top",
    cls=ClusterCommand,
    epilog=examples(
        "waltz top",
        "waltz top --interval 5",
        "waltz top --once -o json | jq '.partitions[].replicas[].lag'",
    ),
)
@prints(WatchedCluster)
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

    If ZooKeeper does not answer, the last sample stays, with the reason, until there is a new one.

    Lag is the number of committed transactions that a replica lacks. A recovery is a new store
    session; recoveries are counted since the command started. With --output json, each sample is
    one line, except with --once.
    """
    where = target(context)
    names = local_names(where)
    # Enough for three slow answers in turn, for example one of ZooKeeper, then the handshake and
    # an answer of a server. The 2 seconds are for all other answers.
    sample_seconds = timeout * 3 + 2

    async def show_samples() -> None:
        async with (
            open_cluster(where) as cluster,
            Monitor(
                cluster,
                await tls_of(where, cluster),
                timeout_seconds=timeout,
                network=network_of(where, cluster),
            ) as monitor,
        ):
            # The display ends before an error is printed: on a terminal it has a screen of its own,
            # which disappears at its end together with all that was printed meanwhile.
            with _display(output, once=once) as display:
                await watch(
                    lambda: sample_within(monitor, sample_seconds),
                    display,
                    interval,
                    names,
                    once=once,
                )

    with contextlib.suppress(KeyboardInterrupt):
        run(show_samples(), seconds=None)


async def sample_within(monitor: Monitor, seconds: float) -> Sample:
    """Return a sample.

    Raises Failed if there is none within ``seconds``, or if the cluster cannot be read.
    """
    try:
        async with asyncio.timeout(seconds):
            return await monitor.sample()
    except TimeoutError:
        raise Failed(f"ZooKeeper did not answer within {seconds:g} s") from None
    except (StoreError, NoCluster, MalformedMetadata) as problem:
        raise Failed(str(problem)) from problem


async def watch(
    take: Callable[[], Awaitable[Sample]],
    display: Display,
    interval: float,
    names: LocalNames,
    *,
    once: bool,
) -> None:
    """Show the samples that ``take`` returns: one at once, then one after each interval.

    With ``once``, show only the second sample, because the first one has no rates yet. If a later
    sample fails, the last one is shown again with the problem, and sampling continues. Raises
    Failed if the first sample fails, and with ``once`` also if the second one fails.
    """
    first = await take()
    before = first  # The last sample that did not fail.
    shown = render_sample(first, before=None, now=first, names=names)
    if not once:
        display(shown, None)
    while True:
        await asyncio.sleep(interval)
        try:
            now = await take()
        except Failed as problem:
            if once:
                raise
            display(shown, str(problem))
            continue
        shown = render_sample(first, before=before, now=now, names=names)
        display(shown, None)
        before = now
        if once:
            return


@contextmanager
def _display(output: OutputFormat, *, once: bool) -> Iterator[Display]:
    """Yield a function that shows one sample.

    Tables on a terminal replace those of the previous sample, unless ``once`` is true.
    """
    if once:
        # With ``once``, `watch` raises a problem and never passes it on.
        yield lambda rendering, _: show(output, rendering)
    elif output is Format.TABLE and sys.stdout.isatty():
        with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
            yield lambda rendering, problem: live.update(
                tables(with_problem(rendering, problem)), refresh=True
            )
    else:
        yield printer(output)


def with_problem(rendering: Rendering, problem: str | None) -> Rendering:
    """Return ``rendering``, the last sample, after a table that says why there is no newer one.

    Without a problem, return ``rendering`` itself.
    """
    if problem is None:
        return rendering
    head = Rows("No new sample", ("reason",), [(problem,)])
    return replace(rendering, tables=(head, *rendering.tables))


def printer(output: OutputFormat) -> Display:
    """Return a function that prints each sample; a problem is printed once to standard error.

    A problem is printed again only if a sample or another problem came in between.
    """
    last_problem: str | None = None

    def print_sample(rendering: Rendering, problem: str | None) -> None:
        nonlocal last_problem
        if problem is None:
            _print(output, rendering)
        elif problem != last_problem:
            say(f"waltz: no new sample: {problem}; retrying")
        last_problem = problem

    return print_sample


def _print(output: OutputFormat, rendering: Rendering) -> None:
    """Print one of many samples: as a line of JSON, a YAML document, tables, or template lines."""
    match output:
        case Format.JSON:
            print(json.dumps(rendering.value), flush=True)  # noqa: T201
        case Format.YAML:
            print("---\n" + as_yaml(rendering.value), end="", flush=True)  # noqa: T201
        case Format.TABLE | Template():
            show(output, rendering)
