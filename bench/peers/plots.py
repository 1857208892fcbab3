"""Draw the rates of the peers as pictures. Writes PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.peers.report import Environment, Reads, Results

_COLOURS = {
    "Waltz": "#2166ac",
    "NATS JetStream": "#ef8a62",
    "Kafka": "#67a9cf",
    "etcd": "#7b7b7b",
    "PostgreSQL": "#b2182b",
}
"""The colour of each peer, the same in all pictures."""
_GREY = "#666666"
_STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def draw_rates(environment: Environment, results: Results, path: Path) -> None:
    """Draw a bar for each peer and shape: the median rate, without and with a lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12, 5), dpi=120, layout="constrained")
        peers = list(dict.fromkeys(series.peer for series in results))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, locks in zip(panels, (False, True), strict=True):
            chosen = [series for series in results if series.locks is locks]
            shapes = list(dict.fromkeys(series.shape for series in chosen))
            # Every peer has the same place and colour in both panels, also where it has no bar.
            for number, peer in enumerate(peers):
                peer_series = [series for series in chosen if series.peer == peer]
                # The bars of a shape share 0.8 of its place; the rest is a gap to the next shape.
                places = [shapes.index(s.shape) + 0.8 * number / len(peers) for s in peer_series]
                rates = [series.median(lambda m: m.rate) for series in peer_series]
                axes.bar(places, rates, 0.75 / len(peers), label=peer, color=_COLOURS[peer])
            # The text of a shape is below the middle of its bars.
            middle = 0.4 * (len(peers) - 1) / max(len(peers), 1)
            axes.set_xticks([number + middle for number in range(len(shapes))], shapes)
            axes.set_yscale("log")
            axes.grid(axis="y", color="#e6e6e6")
            axes.set_axisbelow(True)
            axes.set_xlabel("clients × appends that each keeps open")
            axes.set_title("one lock for each append" if locks else "no lock", loc="left")
        panels[0].set_ylabel("acknowledged records per second (logarithmic)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(peers), frameon=False)
        figure.suptitle(
            "Durable appends to three replicas: higher is better",
            fontweight="bold",
            x=0.01,
            horizontalalignment="left",
        )
        _add_footer(figure, environment)
        figure.savefig(path)


def draw_reads(environment: Environment, reads: Sequence[Reads], path: Path) -> None:
    """Draw a bar for each way of reading: the median rate."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12, 1.5 + 0.45 * len(reads)), dpi=120, layout="constrained")
        axes = figure.subplots()
        axes.barh(
            [f"{each.peer}: {each.reader}" for each in reads],
            [each.median(lambda run: run.rate) for each in reads],
            color=[_COLOURS[each.peer] for each in reads],
        )
        axes.invert_yaxis()  # The first one is at the top.
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(axis="x", color="#e6e6e6")
        axes.set_axisbelow(True)
        axes.set_xlabel("rows per second")
        figure.suptitle("One consumer reads a log: higher is better", fontweight="bold")
        _add_footer(figure, environment)
        figure.savefig(path)


def _add_footer(figure: Figure, environment: Environment) -> None:
    """Say below a picture what was measured, and where."""
    figure.supxlabel(
        f"{environment.size} bytes, medians of {environment.rounds} rounds in turns, "
        f"{environment.machine}, {environment.date}",
        fontsize=9,
        color=_GREY,
    )
