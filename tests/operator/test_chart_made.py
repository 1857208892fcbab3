"""What in the chart is made by programs is up to date, and asks for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.made import CHART, files
from waltz.runtime.metrics import Family, Kind
from waltz_operator.shell.metrics import HELP as OPERATOR
from waltz_server.shell.metrics import METRICS as SERVER
from waltz_storage.shell.metrics import METRICS as STORAGE

_METRIC = re.compile(r"\bwaltz_(?:server|storage|operator)_\w+")
_ALERTS = CHART / "files" / "alerts.yaml"


@pytest.mark.parametrize("file", files(), ids=lambda file: file.name)
def test_it_is_up_to_date(file: Path) -> None:
    assert file.read_text() == files()[file], "run: python -m charts.made"


def shown() -> Iterator[str]:
    """Yield the names of all time series that processes show."""
    for declared in (SERVER, STORAGE):
        yield declared.info
        families: tuple[Family[Any], ...] = (*declared.process, *declared.partition)
        for family in families:
            yield from series(family)
    yield from OPERATOR


def series(family: Family[Any]) -> Iterator[str]:
    if family.kind is Kind.HISTOGRAM:
        yield from (f"{family.name}_{part}" for part in ("bucket", "count", "sum"))
    else:
        yield family.name


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(_ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    """Return what the dashboard asks for."""
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    there = set(shown())
    for asked in ([rule["expr"] for rule in alerts()], queries()):
        used = {name for query in asked for name in _METRIC.findall(query)}
        assert len(used) > 8
        assert used <= there


def test_every_alert_says_what_is_wrong_and_what_it_means() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_documentation_says_what_to_do_about_every_alert() -> None:
    page = (CHART.parents[1] / "docs" / "monitoring.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `Waltz")]
    named = {name for row in rows for name in re.findall(r"`(Waltz\w+)`", row.split("|")[1])}
    assert named == {rule["alert"] for rule in alerts()}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not own & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= own


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not there: Prometheus' own check of the rules is left out")
    return found


def test_prometheus_takes_the_alerts(promtool: str) -> None:
    told = subprocess.run(
        [promtool, "check", "rules", _ALERTS], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{len(alerts())} rules found" in told.stdout


def test_alerts_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    """The stories are in a file of Prometheus' own form."""
    story = Path(__file__).with_name("alert_stories.yaml")
    text = story.read_text().replace("ALERTS", str(_ALERTS))
    (tmp_path / "stories.yaml").write_text(text)
    told = subprocess.run(
        [promtool, "test", "rules", tmp_path / "stories.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    told_of = {
        each["alertname"]
        for test in yaml.safe_load(text)["tests"]
        for each in test["alert_rule_test"]
    }
    assert told_of == {rule["alert"] for rule in alerts()}
