"""Test the console that the chart runs: read by HTTPS through its Service from another pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import resources
from e2e.kubectl import CommandFailed, Kubectl, run
from e2e.waiting import until

_AVAILABLE_SECONDS = 120.0
_SAMPLED_SECONDS = 60.0
_RELEASE = "page"
_DEPLOYMENT = f"deployment/{_RELEASE}-console"
_CLIENT = "console-client"

_READ = """
import http.client, socket, ssl, sys
host, path, name = sys.argv[1:]
connection = http.client.HTTPConnection(host, 8321, timeout=30)
connection.connect()
if name:
    context = ssl.create_default_context(cafile="/tls/ca.crt")
    connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
connection.request("GET", path)
answer = connection.getresponse()
print(answer.read().decode())
sys.exit(answer.status != 200)
"""
"""Prints an answer of the console.

``name`` is the name in the console's certificate. If it is empty, the request is sent by HTTP.
"""


@pytest.fixture(scope="module")
def console(log: Kubectl, module_namespace: Kubectl) -> Iterator[str]:
    """The host name of the console's Service; the console shows the shared cluster.

    The console has a release of its own, without an operator. Only pods with the label
    ``app=console-client`` may connect to it.
    """
    values = {
        "crds.install": "false",
        "replicas": "0",
        "watchNamespace": module_namespace.namespace,
        "console.enabled": "true",
        "console.cluster.name": "log",
        "console.cluster.namespace": log.namespace,
        "console.networkPolicy.from[0].podSelector.matchLabels.app": _CLIENT,
    }
    settings = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    place = ("-n", module_namespace.namespace)
    try:
        run("helm", "install", _RELEASE, str(resources.CHART), *place, *settings)
        log.await_condition(_DEPLOYMENT, "Available", _AVAILABLE_SECONDS)
        yield f"{_RELEASE}-console.{log.namespace}.svc"
    finally:
        run("helm", "uninstall", _RELEASE, *place, "--no-hooks", "--ignore-not-found")


@pytest.fixture(scope="module")
def client(log: Kubectl, console: str) -> Iterator[Kubectl]:
    """The namespace of a pod with the cluster's certificate authority, named `_CLIENT`."""
    wait = ["python3", "-c", "import signal; signal.pause()"]
    pod = resources.client_pod(_CLIENT, "log", log.namespace, wait)
    pod["metadata"]["labels"] = {"app": _CLIENT}
    log.apply(pod)
    try:
        log.await_condition(f"pod/{_CLIENT}", "Ready", _AVAILABLE_SECONDS)
        yield log
    finally:
        log.delete("pod", _CLIENT, now=True)


def read(client: Kubectl, host: str, path: str, name: str) -> str:
    """Return an answer of the console, by `_READ`.

    Raises CommandFailed if the console does not answer, or answers with another status than 200.
    """
    return client("exec", _CLIENT, "--", "python3", "-c", _READ, host, path, name)


def test_cluster_is_read_by_https_through_the_service(client: Kubectl, console: str) -> None:
    name = f"log.{client.namespace}.waltz"

    def sampled() -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads(read(client, console, "/api/cluster", name))
        except CommandFailed:
            return None
        totals = value["totals"]
        all_answer = totals is not None and (
            totals["answering_servers"] == totals["servers"] > 0
            and totals["answering_storages"] == totals["storages"] > 0
        )
        return value if all_answer and value["problem"] is None else None

    def logs() -> str:
        return client("logs", _DEPLOYMENT)

    shown = until(sampled, _SAMPLED_SECONDS, "all processes answer the console", show=logs)
    cluster = client.get("waltzcluster", "log")
    assert cluster is not None
    assert shown["totals"]["partitions"] == cluster["spec"]["partitions"]
    assert len(shown["storages"]) == len(cluster["spec"]["pools"])
    assert shown["names"]["root"] == "/waltz"


def test_page_is_served_by_https_only(client: Kubectl, console: str) -> None:
    name = f"log.{client.namespace}.waltz"
    assert "<title>Waltz console</title>" in read(client, console, "/", name)
    with pytest.raises(CommandFailed):
        read(client, console, "/", "")


def test_console_with_another_name_in_its_certificate_is_refused(
    client: Kubectl, console: str
) -> None:
    with pytest.raises(CommandFailed, match="certificate verify failed"):
        read(client, console, "/", "other.example")
