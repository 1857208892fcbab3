"""Run a real Prometheus that scrapes what the chart's ServiceMonitors select.

Starts programs; reads Kubernetes and the chart; writes files in the folder that it is given.

A ServiceMonitor is an instruction to the Prometheus operator, which these tests lack. `jobs` turns
it into settings of Prometheus, and `targets` finds the pods behind its Services. Prometheus runs
beside the tests, where pods may have no route: it scrapes them through ``kubectl proxy``.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e import installing, resources
from e2e.kubectl import run
from e2e.waiting import until

INTERVAL = "1s"
"""The time between two scrapes, and between two evaluations of the rules."""

_ALERTS = resources.CHART / "files" / "alerts.yaml"
_LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
"""What Prometheus prints when it has started; the group is its address."""
_SERVING = re.compile(r"Starting to serve on (\S+)")
"""What ``kubectl proxy`` prints when it has started; the group is its address."""
_START_SECONDS = 60.0
_KUBERNETES = "1.33.0"
"""Without a version, ``helm template`` assumes one that the chart refuses."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    address: str

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data in the answer of the HTTP API to a GET of ``path``."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://{self.address}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each sample that ``expression`` selects now."""
        samples = self.ask("query", query=expression)["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in samples]

    def firing(self, namespace: str) -> set[str]:
        """Return the names of the alerts that fire for a cluster in ``namespace``."""
        alerts = self.ask("alerts")["alerts"]
        return {
            alert["labels"]["alertname"]
            for alert in alerts
            if alert["state"] == "firing" and alert["labels"].get("namespace") == namespace
        }


@contextmanager
def running(folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus with its files in ``folder``, and ``kubectl proxy`` for its scrapes.

    The chart's alerts fire at once: their delays (``for``) are set to 0.
    """
    with _started(folder / "proxy.log", _SERVING, "kubectl", "proxy", "--port=0") as proxy:
        command = _write_settings(folder, proxy)
        with _started(folder / "prometheus.log", _LISTENING, *command) as address:
            yield Prometheus(address)


def _write_settings(folder: Path, proxy: str) -> tuple[str, ...]:
    """Write the settings of a Prometheus that scrapes through ``proxy``; return its command."""
    monitors = _service_monitors()
    for monitor in monitors:
        file = folder / f"{monitor['metadata']['name']}.json"
        file.write_text(json.dumps(targets(monitor, proxy)))
    alerts = re.sub(r"^( *for: ).*$", r"\g<1>0s", _ALERTS.read_text(), flags=re.MULTILINE)
    (folder / "alerts.yaml").write_text(alerts)
    settings = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [job for monitor in monitors for job in jobs(monitor)],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    return (
        "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    )


@contextmanager
def _started(log: Path, pattern: re.Pattern[str], *command: str) -> Iterator[str]:
    """Run a program, and yield the address that the group of ``pattern`` matches in its output.

    The output goes to the file ``log``.
    """

    def address() -> str | None:
        match = pattern.search(log.read_text())
        return None if match is None else match[1]

    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield until(address, _START_SECONDS, f"{command[0]} listens", show=log.read_text)
        finally:
            process.terminate()


def jobs(monitor: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scrape jobs of a ServiceMonitor."""
    name = monitor["metadata"]["name"]
    return [
        {
            "job_name": f"{name}/{number}",
            "file_sd_configs": [{"files": [f"{name}.json"]}],
            "honor_labels": endpoint.get("honorLabels", False),
            "relabel_configs": [
                {"source_labels": rule["sourceLabels"], "target_label": rule["targetLabel"]}
                for rule in endpoint.get("relabelings", ())
            ],
        }
        for number, endpoint in enumerate(monitor["spec"]["endpoints"])
    ]


def targets(monitor: Mapping[str, Any], proxy: str) -> list[dict[str, Any]]:
    """Return the pods that a ServiceMonitor selects, as targets that are scraped through ``proxy``.

    The result has the format of Prometheus' files of targets.
    """
    spec = monitor["spec"]
    terms = [f"{label}={value}" for label, value in spec["selector"]["matchLabels"].items()]
    terms += [
        f"{each['key']} in ({','.join(each['values'])})"
        for each in spec["selector"].get("matchExpressions", ())
    ]
    everywhere = spec.get("namespaceSelector", {}).get("any", False)
    place = ("--all-namespaces",) if everywhere else ("-n", monitor["metadata"]["namespace"])
    found = run("kubectl", "get", "endpoints", *place, "-l", ", ".join(terms), "-o", "json")
    port_names = {endpoint["port"] for endpoint in spec["endpoints"]}
    return [
        {
            "targets": [proxy],
            "labels": _labels(endpoints["metadata"], address["targetRef"]["name"], port["port"]),
        }
        for endpoints in json.loads(found)["items"]
        for subset in endpoints.get("subsets", ())
        for port in subset["ports"]
        if port.get("name") in port_names
        for address in subset.get("addresses", ())
    ]


def _labels(metadata: Mapping[str, Any], pod: str, port: int) -> dict[str, str]:
    """Return the labels of a target.

    They are the labels that the Prometheus operator adds, the labels of the Service, which the
    relabelings use, and ``__metrics_path__``, the path of the pod's metrics below the proxy.
    """
    of_service = {
        f"__meta_kubernetes_service_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": value
        for name, value in metadata["labels"].items()
    }
    namespace = metadata["namespace"]
    return of_service | {
        "__metrics_path__": f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics",
        "namespace": namespace,
        "service": metadata["name"],
        "pod": pod,
    }


def _service_monitors() -> list[dict[str, Any]]:
    """Return the ServiceMonitors that the chart renders for the installed release."""
    rendered = run(
        "helm",
        "template",
        installing.RELEASE,
        str(resources.CHART),
        *("-n", installing.OPERATOR.namespace),
        *("--kube-version", _KUBERNETES),
        *("--set", "serviceMonitor.enabled=true"),
        *("--show-only", "templates/monitoring.yaml"),
    )
    return [each for each in yaml.safe_load_all(rendered) if each["kind"] == "ServiceMonitor"]
