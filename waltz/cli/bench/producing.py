"""Append the transactions of a plan, and show their rate and durations. Touches the network."""

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

    ``size`` is the number of bytes of data that ``write`` appends in each transaction.
    """

    async def work() -> Measurements:
        with progress("appended", plan.total) as advance:
            return await produce(where, plan, write, advance)

    measured = run(work(), seconds=None)
    num_bytes = size * len(measured.durations)
    show(output, render_appends(num_bytes, measured.seconds, measured.durations, measured.attempts))
