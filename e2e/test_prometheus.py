"""Test the chart's monitoring with a real Prometheus.

It scrapes all processes, the dashboard's queries have data, and an alert fires.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from e2e import prometheus, resources
from e2e.installing import OPERATOR
from e2e.kubectl import Kubectl
from e2e.prometheus import Prometheus
from e2e.waiting import until
from e2e.witnessing import Witness

_DASHBOARD = resources.CHART / "files" / "dashboard.json"
_SCRAPED_SECONDS = 60.0
_ALERT_SECONDS = 60.0
_OF_THE_WAL_ENGINE = "write-ahead log"
"""Panels with these words in their title have data only if a storage has the engine `wal`."""


@pytest.fixture(scope="module")
def scraping(log: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the shared cluster and the operator."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: nothing scrapes the cluster")
    log.await_condition("waltzcluster/log", "Healthy", 120)
    with prometheus.running(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def count_pods(log: Kubectl, component: str) -> int:
    return len(log.find("pods", f"waltz.dev/component={component}"))


def test_prometheus_scrapes_each_process_once(
    scraping: Prometheus, log: Kubectl, witness: Witness
) -> None:
    of_cluster = f'{{namespace="{log.namespace}", waltz_cluster="log"}}'
    expected = {
        f"count(waltz_server_healthy{of_cluster} == 1)": count_pods(log, "server"),
        f"count(waltz_storage_healthy{of_cluster} == 1)": count_pods(log, "storage"),
        # This counts the pools with exactly one storage, which are all pools.
        f"count(count by (waltz_pool) (waltz_storage_healthy{of_cluster} == 1) == 1)": count_pods(
            log, "storage"
        ),
        "sum(waltz_operator_is_leader)": 1,
        # Only these namespaces, because other tests may start pods in others meanwhile.
        f'min(up{{namespace=~"{log.namespace}|{OPERATOR.namespace}"}})': 1,
    }

    def values() -> dict[str, float]:
        """Return the value of the first sample of each expression that has samples."""
        samples = {expression: scraping.query(expression) for expression in expected}
        return {expression: found[0][1] for expression, found in samples.items() if found}

    until(lambda: values() == expected, _SCRAPED_SECONDS, f"{expected}", show=values)


def test_queries_of_the_dashboard_have_data(
    scraping: Prometheus, log: Kubectl, witness: Witness
) -> None:
    variables = {"$namespace": log.namespace, "$waltz_cluster": "log", "$__rate_interval": "30s"}
    expressions = []
    for panel in json.loads(_DASHBOARD.read_text())["panels"]:
        if _OF_THE_WAL_ENGINE in panel["title"]:
            continue
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in variables.items():
                expression = expression.replace(variable, value)
            expressions.append(expression)
    assert len(expressions) > 20

    def without_data() -> list[str]:
        return [expression for expression in expressions if not scraping.query(expression)]

    until(
        lambda: not without_data(),
        _SCRAPED_SECONDS,
        "each query of the dashboard has data",
        show=without_data,
    )


def test_alert_fires_while_the_cluster_is_paused(
    scraping: Prometheus, log: Kubectl, witness: Witness
) -> None:
    alert = "WaltzClusterNotReady"

    def fires() -> bool:
        return alert in scraping.firing(log.namespace)

    until(lambda: not fires(), _ALERT_SECONDS, f"{alert} does not fire at first")
    log.patch("waltzcluster", "log", {"spec": {"paused": True}})
    try:
        until(fires, _ALERT_SECONDS, f"{alert} fires", show=log.describe)
    finally:
        log.patch("waltzcluster", "log", {"spec": {"paused": False}})
    until(lambda: not fires(), _ALERT_SECONDS, f"{alert} does not fire any more", show=log.describe)
