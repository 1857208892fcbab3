"""Draw the rates of the peers as a picture. Writes one PNG file."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.peers.report import Environment, Results

_COLOURS = ("#2166ac", "#ef8a62", "#67a9cf", "#b2182b")
_GREY = "#666666"


def draw_rates(environment: Environment, results: Results, path: Path) -> None:
    """Draw a bar for each peer and shape: the median rate, without and with a lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        figure = Figure(figsize=(12, 5), dpi=120, layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, locks in zip(panels, (False, True), strict=True):
            chosen = [series for series in results if series.locks is locks]
            shapes = list(dict.fromkeys(series.shape for series in chosen))
            peers = list(dict.fromkeys(series.peer for series in chosen))
            for number, peer in enumerate(peers):
                of_peer = [series for series in chosen if series.peer == peer]
                # The bars of a shape share 0.8 of its place; the rest is a gap to the next shape.
                places = [shapes.index(s.shape) + 0.8 * number / len(peers) for s in of_peer]
                rates = [series.median(lambda m: m.rate) for series in of_peer]
                axes.bar(places, rates, 0.75 / len(peers), label=peer, color=_COLOURS[number])
            middle = 0.4 * (len(peers) - 1) / max(len(peers), 1)
            axes.set_xticks([number + middle for number in range(len(shapes))], shapes)
            axes.set_yscale("log")
            axes.grid(axis="y", color="#e6e6e6")
            axes.set_axisbelow(True)
            axes.set_xlabel("clients × appends that each keeps open")
            axes.set_title("one lock for each append" if locks else "no lock", loc="left")
        panels[0].set_ylabel("acknowledged records per second (logarithmic)")
        panels[0].legend(frameon=False)
        figure.suptitle("Durable appends to three replicas: higher is better", fontweight="bold")
        figure.supxlabel(
            f"{environment.size} bytes, medians of {environment.rounds} rounds in turns, "
            f"{environment.machine}, {environment.date}",
            fontsize=9,
            color=_GREY,
        )
        figure.savefig(path)
