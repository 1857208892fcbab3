"""Test the access from outside of Kubernetes while the servers are rolled.

A witness (`e2e.witness`) on the machine of the tests appends and reads meanwhile. It uses only the
addresses for clients outside, and verifies the host of each connection.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Any

from e2e import resources
from e2e.kubectl import Kubectl, run
from e2e.waiting import until

_READY_SECONDS = 180.0
_LOADED_SECONDS = 180.0
"""How long pods may take to load a changed certificate: Kubernetes updates the files of a mounted
secret about once a minute."""

_SOON_SECONDS = 60.0
_ROLL_SECONDS = 180.0
_OUTSIDE = "waltz.dev/outside=true"
_SERVERS = "waltz.dev/cluster=log,waltz.dev/component=server"


@dataclass(frozen=True, slots=True)
class HostWitness:
    """A process of the program `witness` on this machine; its files are in ``folder``."""

    folder: Path
    process: subprocess.Popen[bytes]

    def read_counts(self) -> list[int]:
        """Return how many transactions of each partition were read; empty before the first report.

        Raises AssertionError after a violation, or if the process has ended.
        """
        assert self.process.poll() is None, self.output()
        file = self.folder / "progress"
        progress = json.loads(file.read_text()) if file.exists() else {"read": [], "violations": []}
        assert not progress["violations"], progress["violations"]
        counts: list[int] = progress["read"]
        return counts

    def await_progress(self, kubectl: Kubectl, seconds: float, appends: int = 10) -> None:
        """Return when ``appends`` more transactions of every partition have been read.

        Every count must exceed the largest count at the time of the call by ``appends``.
        """
        before = self.read_counts() or [0]

        def advanced() -> bool:
            now = self.read_counts()
            return bool(now) and min(now) >= max(before) + appends

        until(advanced, seconds, "every partition takes appends", show=kubectl.describe)

    def finish(self) -> None:
        """Let the witness check all transactions and end.

        Raises AssertionError if there is a violation.
        """
        (self.folder / "stop").touch()
        assert self.process.wait(150) == 0, self.output()

    def output(self) -> str:
        """Return what the witness has printed."""
        return (self.folder / "output").read_text()


@contextmanager
def running_witness(folder: Path, **environment: str) -> Iterator[HostWitness]:
    """Run the witness with the variables ``environment``; kill it at the end if it still runs."""
    program = str(Path(__file__).with_name("witness.py"))
    variables = {**os.environ, "PYTHONPATH": str(resources.REPOSITORY), **environment}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, program, str(folder)],
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield HostWitness(folder, process)
        finally:
            process.kill()
            process.wait()


def node_address() -> str:
    """Return the address of the first node."""
    path = "{.items[0].status.addresses[0].address}"
    return Kubectl("default")("get", "nodes", "-o", f"jsonpath={path}").strip()


def outside_status(namespace: Kubectl) -> dict[str, Any]:
    """Return the part of the cluster's status about the access from outside."""
    cluster = namespace.get("waltzcluster", "log")
    assert cluster is not None
    found: dict[str, Any] = (cluster.get("status") or {}).get("outside") or {}
    return found


def write_certificates(namespace: Kubectl, name: str, folder: Path) -> None:
    """Write the certificates of a secret into ``folder``."""
    secret = namespace.get("secret", name)
    assert secret is not None
    folder.mkdir(exist_ok=True)
    for part in ("ca.crt", "tls.crt", "tls.key"):
        (folder / part).write_bytes(base64.b64decode(secret["data"][part]))


def verify_from_outside(namespace: Kubectl, zookeeper: str, folder: Path) -> str:
    """Verify the cluster as an administrator outside; return the output. Raises CommandFailed."""
    write_certificates(namespace, "log-tls", folder)
    tls = {
        "certificate": str(folder / "tls.crt"),
        "key": str(folder / "tls.key"),
        "ca": str(folder / "ca.crt"),
        "serverName": f"log.{namespace.namespace}.waltz",
    }
    file = folder / "tls.yaml"
    file.write_text(json.dumps(tls))
    where = ("--zookeeper", zookeeper, "--tls", str(file), "--access", "outside")
    return run(sys.executable, "-m", "waltz.cli", "cluster", "verify", *where)


def presents_name(host: str, port: int, folder: Path) -> bool:
    """Whether the server at a port presents a certificate that is valid for ``host``."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    try:
        with (
            create_connection((host, port), timeout=5) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except OSError:
        return False


def server_ports(namespace: Kubectl) -> dict[str, int]:
    """Return the port of the nodes by which clients reach each server, by the slot of its pod.

    A slot is the number of the Service that leads to the pod.
    """
    slots = {
        pod["metadata"]["labels"].get("waltz.dev/slot") for pod in namespace.find("pod", _SERVERS)
    }
    ports = {}
    for slot in slots - {None}:
        service = namespace.get("service", f"log-server-{slot}-outside")
        assert service is not None
        ports[slot] = int(service["spec"]["ports"][0]["nodePort"])
    return ports


def pods_with_slot(namespace: Kubectl) -> list[str]:
    return [pod["metadata"]["name"] for pod in namespace.find("pod", "waltz.dev/slot")]


def test_client_outside_works_through_a_roll_and_the_access_is_removed_without_a_trace(
    namespace: Kubectl, tmp_path: Path
) -> None:
    host = node_address()
    access = {
        "outside": {"type": "NodePort", "host": host, "adminPorts": True, "openZooKeeper": True}
    }
    spec: dict[str, Any] = {"partitions": 2, "servers": {"replicas": 2}, "access": access}
    namespace.apply(resources.pool("p"), resources.cluster("log", ["p"], **spec))
    namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    until(
        lambda: outside_status(namespace).get("addresses") == "3/3",
        _SOON_SECONDS,
        "all servers and storages have an outside address",
        show=namespace.describe,
    )
    write_certificates(namespace, "log-tls-client", tmp_path)
    ports = server_ports(namespace)
    assert len(ports) == 2
    until(
        lambda: all(presents_name(host, port, tmp_path) for port in ports.values()),
        _LOADED_SECONDS,
        f"the servers present a certificate that is valid for {host}",
        show=namespace.describe,
    )
    zookeeper = outside_status(namespace)["connectString"]
    environment = {"ZOOKEEPER": zookeeper, "ROOT": "/waltz", "ACCESS": "outside"}
    environment |= {"TLS": str(tmp_path), "TLS_NAME": ""}
    with running_witness(tmp_path, **environment) as witness:
        witness.await_progress(namespace, _SOON_SECONDS)
        old = {pod["metadata"]["uid"] for pod in namespace.find("pod", _SERVERS)}
        namespace("rollout", "restart", "deployment/log-server")
        namespace("rollout", "status", "deployment/log-server", "--timeout=3m", seconds=200)
        until(
            lambda: not old & {pod["metadata"]["uid"] for pod in namespace.find("pod", _SERVERS)},
            _ROLL_SECONDS,
            "all servers are replaced",
            show=namespace.describe,
        )
        witness.await_progress(namespace, _SOON_SECONDS)
        ports = server_ports(namespace)
        assert len(ports) == 2
        verify_from_outside(namespace, zookeeper, tmp_path / "administrator")
        witness.finish()
    namespace.patch("waltzcluster", "log", {"spec": {"access": {"outside": None}}})
    until(
        lambda: not namespace.find("service", _OUTSIDE) and not pods_with_slot(namespace),
        _SOON_SECONDS,
        "the Services and the labels are removed",
        show=namespace.describe,
    )
    until(
        lambda: not any(presents_name(host, port, tmp_path) for port in ports.values()),
        _SOON_SECONDS,
        "the servers cannot be reached from outside",
        show=namespace.describe,
    )
    namespace.await_condition("waltzcluster/log", "Healthy", _SOON_SECONDS)
    assert set(outside_status(namespace).values()) == {""}, "the status names no address any more"
