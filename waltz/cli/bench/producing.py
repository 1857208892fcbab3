"""Append the transactions of a plan, and show how fast that was. Touches the network."""

from __future__ import annotations

from waltz.cli.bench.load import LoadPlan, Measurements, Write, produce
from waltz.cli.bench.rows import render_appends
from waltz.cli.cluster_options import Target
from waltz.cli.output import OutputFormat, show
from waltz.cli.progress import progress
from waltz.cli.running import run


def produce_and_show(
    where: Target, plan: LoadPlan, write: Write, size: int, output: OutputFormat
) -> None:
    """Append the transactions of ``plan`` by ``write``; show the progress, then the measurements.

    The data of each transaction have ``size`` bytes.
    """

    async def work() -> Measurements:
        with progress("appended", plan.total) as advance:
            return await produce(where, plan, write, advance)

    measured = run(work(), seconds=None)
    num_bytes = size * len(measured.durations)
    show(output, render_appends(num_bytes, measured.seconds, measured.durations, measured.attempts))
