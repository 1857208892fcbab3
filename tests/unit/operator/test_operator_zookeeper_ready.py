"""Test the readiness probe of a ZooKeeper member with a server that answers as the test says."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

_READY = Path(__file__).parents[3] / "operator" / "zookeeper" / "ready"
_SERVING = (
    b"Zookeeper version: 3.9.5\nLatency min/avg/max: 0/0.0/0\nMode: standalone\nNode count: 5\n"
)
_NOT_SERVING = b"This ZooKeeper instance is not currently serving requests\n"


def probe(answer: bytes | None) -> subprocess.CompletedProcess[bytes]:
    """Run the probe against a server that answers, or never answers and never closes (None)."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                if answer is None:
                    done.wait(60)
                else:
                    connection.recv(4)
                    connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        try:
            environment = {**os.environ, "CLIENT_PORT": str(listening.getsockname()[1])}
            # The end of the output is awaited: no other process may keep it open.
            return subprocess.run(
                ["bash", _READY], env=environment, capture_output=True, check=False, timeout=30
            )
        finally:
            done.set()
            server.join()


def test_member_that_serves_is_ready() -> None:
    assert probe(_SERVING).returncode == 0


@pytest.mark.parametrize("answer", [_NOT_SERVING, b""])
def test_member_that_does_not_serve_is_not_ready(answer: bytes) -> None:
    assert probe(answer).returncode == 1


def test_probe_that_gets_no_answer_ends() -> None:
    assert probe(None).returncode == 1
