"""Write the report of a run: one HTML page with a timeline, without other files. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tests.chaos.checker import Violation
from tests.chaos.closures import Closure, acknowledged_at, closures
from tests.chaos.history import Append, Event, Fault, MarkRead, Note, Seen

_WIDTH = 1160
_LEFT = 150
_ROW = 22
_CHART = 70
_SHOWN_VIOLATIONS = 200

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 24px; max-width: 1200px; color: #1c1c1c }
h1 { font-size: 22px } h2 { font-size: 17px; margin-top: 28px }
table { border-collapse: collapse } td, th { padding: 2px 12px 2px 0; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.good { color: #146c2e } .bad { color: #b3261e } svg text { font: 11px system-ui, sans-serif }
code { white-space: pre-wrap }
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What the page is about."""

    seed: int
    seconds: float
    """The length of the run, from the first append to the last check."""
    faults_ended: float
    partitions: int
    left_out: str
    """Why some kinds of faults were not injected, empty if all were."""


def page(run: Run, events: Sequence[Event], violations: Sequence[Violation]) -> str:
    """Return the page."""
    closed = {
        p: closures(acknowledged_at(events, p), p, run.seconds) for p in range(run.partitions)
    }
    verdict = (
        '<p class="good">All guarantees held.</p>'
        if not violations
        else f'<p class="bad">{len(violations)} violations.</p>'
    )
    parts = [
        f"<!doctype html><meta charset='utf-8'><title>Chaos, seed {run.seed}</title>",
        f"<style>{_STYLE}</style><h1>Chaos run, seed {run.seed}</h1>{verdict}",
        _violations(violations),
        "<h2>Timeline</h2>",
        "<p>Bars: acknowledged appends per second. Red: no acknowledgement for a second or more. "
        "Point at a fault for its name and times.</p>",
        _timeline(run, events, closed),
        "<h2>Counts</h2>",
        _counts(run, events, closed),
        _notes(events),
    ]
    return "\n".join(parts) + "\n"


def _violations(violations: Sequence[Violation]) -> str:
    if not violations:
        return ""
    rows = "".join(
        f"<tr><td>{escape(v.guarantee)}</td><td class='number'>{v.partition}</td>"
        f"<td>{escape(v.text)}</td></tr>"
        for v in violations[:_SHOWN_VIOLATIONS]
    )
    return f"<table><tr><th>guarantee<th>partition<th>what happened</tr>{rows}</table>"


def _timeline(run: Run, events: Sequence[Event], closed: dict[int, list[Closure]]) -> str:
    faults = [event for event in events if isinstance(event, Fault)]
    rows = sorted({(fault.group, fault.target) for fault in faults})
    scale = (_WIDTH - _LEFT) / max(run.seconds, 1.0)
    shapes: list[str] = []
    top = 10
    for partition, times in closed.items():
        shapes += _chart(
            f"partition {partition}", top, acknowledged_at(events, partition), times, scale
        )
        top += _CHART + 12
    for group, target in rows:
        shapes.append(_label(top + 14, f"{group}: {target}" if target != group else group))
        shapes += [
            _bar(fault.began, fault.ended, top + 3, _ROW - 6, scale, _color(group), _title(fault))
            for fault in faults
            if (fault.group, fault.target) == (group, target)
        ]
        top += _ROW
    shapes += _axis(run.seconds, top + 4, scale)
    return f"<svg width='{_WIDTH}' height='{top + 26}' role='img'>{''.join(shapes)}</svg>"


def _chart(
    name: str, top: int, times: Sequence[float], closed: Sequence[Closure], scale: float
) -> list[str]:
    per_second = Counter(int(moment) for moment in times)
    most = max(per_second.values(), default=1)
    bottom = top + _CHART
    shapes = [_label(bottom - 4, f"{name} (max {most}/s)")]
    shapes += [
        _bar(one.began, one.ended, top, _CHART, scale, "#f6c7c3", f"closed for {one.seconds:.1f} s")
        for one in closed
    ]
    for second, count in sorted(per_second.items()):
        height = max(1, round(count / most * _CHART))
        title = f"second {second}: {count} appends"
        shapes.append(_bar(second, second + 0.9, bottom - height, height, scale, "#4a7fb5", title))
    return shapes


def _bar(
    began: float, ended: float, top: float, height: float, scale: float, color: str, title: str
) -> str:
    x, width = _LEFT + began * scale, max(1.0, (ended - began) * scale)
    return (
        f"<rect x='{x:.1f}' y='{top:.0f}' width='{width:.1f}' height='{height:.0f}' fill='{color}'>"
        f"<title>{escape(title)}</title></rect>"
    )


def _label(y: float, text: str) -> str:
    return f"<text x='0' y='{y:.0f}'>{escape(text)}</text>"


def _axis(seconds: float, top: float, scale: float) -> list[str]:
    step = next((s for s in (10, 30, 60, 300) if seconds / s <= 12), 600)
    return [
        f"<text x='{_LEFT + moment * scale:.0f}' y='{top + 14:.0f}'>{moment} s</text>"
        for moment in range(0, int(seconds) + 1, step)
    ]


def _title(fault: Fault) -> str:
    what = f"{fault.name}: {fault.detail}" if fault.detail else fault.name
    return f"{what} ({fault.target}), {fault.began:.1f} to {fault.ended:.1f} s"


def _color(group: str) -> str:
    colors = {"disk": "#a23b72", "server": "#c98a1b", "zookeeper": "#5b8c5a", "replicas": "#7a6fbe"}
    return colors.get(group, "#8a5a44")


def _counts(run: Run, events: Sequence[Event], closed: dict[int, list[Closure]]) -> str:
    outcomes = Counter(event.outcome for event in events if isinstance(event, Append))
    kinds = Counter(event.name for event in events if isinstance(event, Fault))
    rows = [
        ("seconds", f"{run.seconds:.0f}"),
        ("faults ended at second", f"{run.faults_ended:.0f}"),
    ]
    rows += [(f"appends {name}", f"{count:,}") for name, count in sorted(outcomes.items())]
    rows.append(("marks read", f"{sum(isinstance(e, MarkRead) for e in events):,}"))
    received = sum(len(event.keys) for event in events if isinstance(event, Seen))
    rows.append(("transactions received by readers", f"{received:,}"))
    for partition, times in closed.items():
        longest = max((one.seconds for one in times), default=0.0)
        total = sum(one.seconds for one in times)
        text = f"{len(times)} times, {total:.0f} s in all, {longest:.1f} s at most"
        rows.append((f"partition {partition} was closed", text))
    rows += [(f"fault: {name}", str(count)) for name, count in sorted(kinds.items())]
    if run.left_out:
        rows.append(("left out: disks full or stalled", run.left_out))
    body = "".join(
        f"<tr><td>{escape(n)}</td><td class='number'>{escape(v)}</td></tr>" for n, v in rows
    )
    return f"<table>{body}</table>"


def _notes(events: Sequence[Event]) -> str:
    notes = [event for event in events if isinstance(event, Note)]
    if not notes:
        return ""
    rows = "".join(
        f"<tr><td class='number'>{note.at:.1f}</td><td><code>{escape(note.text)}</code></td></tr>"
        for note in notes
    )
    return f"<h2>Notes</h2><table>{rows}</table>"
