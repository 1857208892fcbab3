"""Generate the Grafana dashboard in JSON from `charts.panels`. Touches nothing."""

from __future__ import annotations

import json
from typing import Any

from charts.panels import ROWS, Panel

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
"""The width of the page in units of Grafana's grid."""


def dashboard() -> str:
    """Return the dashboard as JSON."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        heading = {"type": "row", "title": title, "collapsed": False}
        panels.append(_place(heading, left=0, top=top, width=_WIDTH, height=1))
        top += 1
        left = height = 0
        for panel in row:
            if left + panel.width > _WIDTH:
                # The line of panels is full: begin a new line below it.
                left, top = 0, top + height
            # All panels of a line have the same height.
            height = 4 if panel.shows_now else 8
            panels.append(
                _place(_panel(panel), left=left, top=top, width=panel.width, height=height)
            )
            left += panel.width
        top += height
    for number, each in enumerate(panels, start=1):
        each["id"] = number
    return json.dumps(_page(panels), indent=1) + "\n"


def _page(panels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the dashboard with ``panels``."""
    return {
        "title": "Waltz",
        "uid": "waltz",
        "tags": ["waltz"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _choice("namespace", "label_values(waltz_storage_healthy, namespace)"),
                _choice(
                    "waltz_cluster",
                    'label_values(waltz_storage_healthy{namespace=~"$namespace"}, waltz_cluster)',
                ),
            ]
        },
        "panels": panels,
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    """Return a variable of the page: the user chooses among the results of ``query``."""
    return {
        "name": name,
        "label": name.removeprefix("waltz_"),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # The choices are read again when the time range changes.
        "includeAll": True,
        # The choice "All" also matches series that do not have this label.
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _place(
    panel: dict[str, Any], *, left: int, top: int, width: int, height: int
) -> dict[str, Any]:
    """Return ``panel`` with its place on the page, in units of Grafana's grid."""
    return panel | {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> dict[str, Any]:
    """Return ``panel`` in Grafana's format, without its place."""
    field: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.alarm is not None:
        below, above = ("red", "green") if panel.low_is_bad else ("green", "red")
        # Each step is the colour from its value on; the first one has no lower bound.
        steps = [{"color": below, "value": None}, {"color": above, "value": panel.alarm}]
        field["thresholds"] = {"mode": "absolute", "steps": steps}
    grafana_panel: dict[str, Any] = {
        "type": "stat" if panel.shows_now else "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": field, "overrides": []},
        # Grafana names the queries of a panel A, B, and so on.
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": line.query,
                "legendFormat": line.name,
                "instant": panel.shows_now,
            }
            for number, line in enumerate(panel.lines)
        ],
    }
    if panel.about:
        grafana_panel["description"] = panel.about
    return grafana_panel
