"""Test which values of ``--host`` and ``--allow-host`` can be the name of a Host header."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.console.core.hosts import allowed_names, host_name, is_host_name, refusal


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("console.example", "console.example:8321"),
        ("Console.Example", "console.example"),
        ("192.0.2.7", "192.0.2.7:80"),
        ("fd00::1", "[fd00::1]:8321"),
    ],
)
def test_host_name_that_is_accepted_is_served(name: str, header: str) -> None:
    assert is_host_name(name)
    assert host_name(header) == name.lower()
    assert refusal(header, None, allowed_names("127.0.0.1", [name])) is None


@pytest.mark.parametrize(
    "name",
    ["", " ", "console.example:8321", "[fd00::1]", " console", "http://console", "console/"],
)
def test_host_name_that_no_header_has_is_refused(name: str) -> None:
    assert not is_host_name(name)
    refused = CliRunner().invoke(
        app, ["console", "--zookeeper", "127.0.0.1:1", "--allow-host", name]
    )
    assert refused.exit_code == 2
    assert "without http:// or a port" in " ".join(refused.output.replace("│", " ").split())
