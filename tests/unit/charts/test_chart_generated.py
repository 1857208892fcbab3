"""Generated files of the chart are up to date; alerts and dashboard use existing metrics."""

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

from charts.generate import CHART, files
from waltz.runtime.metrics import Kind, MetricFamily
from waltz_operator.shell.metrics import HELP as OPERATOR
from waltz_server.shell.metrics import METRICS as SERVER
from waltz_storage.shell.metrics import METRICS as STORAGE

_METRIC = re.compile(r"\bwaltz_(?:server|storage|operator)_\w+")
_ALERTS = CHART / "files" / "alerts.yaml"


@pytest.mark.parametrize("file", files(), ids=lambda file: file.name)
def test_generated_file_is_up_to_date(file: Path) -> None:
    assert file.read_text() == files()[file], "run: python -m charts.generate"


def metric_names() -> Iterator[str]:
    """Yield the names of all time series of the processes."""
    for declared in (SERVER, STORAGE):
        yield declared.info
        families: tuple[MetricFamily[Any], ...] = (*declared.process, *declared.partition)
        for family in families:
            yield from series(family)
    yield from OPERATOR


def series(family: MetricFamily[Any]) -> Iterator[str]:
    if family.kind is Kind.HISTOGRAM:
        yield from (f"{family.name}_{part}" for part in ("bucket", "count", "sum"))
    else:
        yield family.name


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(_ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    """Return the dashboard's queries."""
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_alerts_and_dashboard_use_existing_metrics() -> None:
    existing = set(metric_names())
    for expressions in ([rule["expr"] for rule in alerts()], queries()):
        used = {name for query in expressions for name in _METRIC.findall(query)}
        assert len(used) > 8
        assert used <= existing


def test_closed_slow_readers_have_an_alert_and_a_panel() -> None:
    for process in ("server", "storage"):
        metric = f"waltz_{process}_closed_slow_readers_total"
        for expressions in ([rule["expr"] for rule in alerts()], queries()):
            assert any(metric in expression for expression in expressions)


def test_every_alert_has_severity_summary_and_description() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_documentation_has_a_row_for_every_alert() -> None:
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
        pytest.skip("promtool is not installed: Prometheus' own check of the rules is skipped")
    return found


def test_promtool_accepts_the_alerts(promtool: str) -> None:
    ran = subprocess.run(
        [promtool, "check", "rules", _ALERTS], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(alerts())} rules found" in ran.stdout


def test_panel_counts_partitions_whose_storages_have_all_stopped(
    promtool: str, tmp_path: Path
) -> None:
    panels = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    (panel,) = (each for each in panels if each["title"] == "Partitions that take no appends")
    (target,) = panel["targets"]
    query = target["expr"].replace("$namespace", "n").replace("$waltz_cluster", "c")
    storage, server = (
        f'{metric}{{namespace="n", waltz_cluster="c", partition="0", pod="x"}}'
        for metric in ("waltz_storage_partition_session_id", "waltz_server_partition_open")
    )
    series = [
        {"series": storage, "values": "7x5 stale"},
        {"series": server, "values": "1x5 0x10"},
    ]
    checks = [
        {"expr": query, "eval_time": time, "exp_samples": [{"labels": "{}", "value": count}]}
        for time, count in (("5m", 0), ("10m", 1))
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": checks}
    (tmp_path / "panel.yaml").write_text(yaml.safe_dump({"tests": [test]}))
    ran = subprocess.run(
        [promtool, "test", "rules", tmp_path / "panel.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alerts_fire_in_their_scenarios(promtool: str, tmp_path: Path) -> None:
    """The scenarios are a file in promtool's format."""
    scenarios = Path(__file__).with_name("alert_scenarios.yaml")
    text = scenarios.read_text().replace("ALERTS", str(_ALERTS))
    (tmp_path / "scenarios.yaml").write_text(text)
    ran = subprocess.run(
        [promtool, "test", "rules", tmp_path / "scenarios.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tested = {
        each["alertname"]
        for test in yaml.safe_load(text)["tests"]
        for each in test["alert_rule_test"]
    }
    assert tested == {rule["alert"] for rule in alerts()}
