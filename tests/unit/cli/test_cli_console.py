"""``waltz console``: errors are one line, before anything is served; SIGTERM ends it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app

WHERE = ("--zookeeper", "127.0.0.1:1")


def test_port_in_use_fails_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["console", "--port", str(port), *WHERE])
    assert result.exit_code == 1
    assert result.stderr == (
        f"waltz: cannot serve the console on 127.0.0.1:{port}: Address already in use; choose "
        "another address or port with --host and --port\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (("--root", "no/slash"), 2, "no/slash"),
        (("--port", "70000"), 2, "65535"),
        (("--interval", "0"), 2, "0.2"),
        (("--tls", "missing.yml"), 2, "missing.yml"),
        (("--certificate", "only.crt"), 2, "--certificate and --key go together"),
        (("--key", "only.key"), 2, "--certificate and --key go together"),
        (("--certificate", "missing.crt", "--key", "missing.key"), 1, "missing.crt"),
    ],
)
def test_wrong_option_is_named_without_a_traceback(
    arguments: tuple[str, ...], status: int, part: str
) -> None:
    result = CliRunner().invoke(app, ["console", *WHERE, *arguments])
    assert (result.exit_code, part in result.stderr) == (status, True), result.output
    assert "Traceback" not in result.output


def test_sigterm_ends_the_console_with_status_0() -> None:
    command = [sys.executable, "-m", "waltz.cli", "console", "--port", "0", *WHERE]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            assert "http://127.0.0.1:" in process.stderr.readline()
        finally:
            process.terminate()
        assert process.wait(timeout=60) == 0
