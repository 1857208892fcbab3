"""The command lines of server and storage: help, version, unusable settings."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from waltz.runtime.configuration import Settings, keys
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig


def run(process: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WALTZ_")}
    return subprocess.run(
        [sys.executable, "-m", f"waltz_{process}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean | {"COLUMNS": "200"} | variables,
    )


@pytest.mark.parametrize("model", [ServerConfig, StorageConfig], ids=["server", "storage"])
def test_help_of_service_shows_usage_and_every_setting(model: type[Settings]) -> None:
    ended = run(model.process, "--help")
    assert ended.returncode == 0
    assert f"Usage: waltz-{model.process} [OPTIONS] [FILE]" in ended.stdout
    assert f"waltz config explain {model.process} FILE" in ended.stdout
    assert "SIGTERM" in ended.stdout
    assert all(f"{key.name} ({key.kind}" in ended.stdout for key in keys(model))


@pytest.mark.parametrize("process", ["server", "storage"])
def test_version_option_prints_installed_version(process: str) -> None:
    ended = run(process, "--version")
    assert (ended.returncode, ended.stdout) == (0, f"waltz-{process} {version('waltz-log')}\n")


@pytest.mark.parametrize("process", ["server", "storage"])
def test_service_with_unusable_settings_exits_with_one_line(process: str, tmp_path: Path) -> None:
    for arguments, expected in (
        ((), "without a settings file, $WALTZ_ZOOKEEPER_CONNECT_STRING"),
        ((str(tmp_path),), f"cannot read {tmp_path}: Is a directory"),
    ):
        ended = run(process, *arguments)
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"waltz-{process}: {expected}")
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("process", ["server", "storage"])
def test_service_with_unusable_tls_variable_exits_with_one_line(process: str) -> None:
    ended = run(
        process,
        WALTZ_ZOOKEEPER="127.0.0.1:1",
        WALTZ_ZOOKEEPER_SESSION_TIMEOUT="100",
        WALTZ_SERVER_PORT="0",
        WALTZ_STORAGE_PORT="0",
        WALTZ_STORAGE_ADMIN_PORT="0",
        WALTZ_STORAGE_DIRECTORY="/d",
        WALTZ_TLS="missing.yml",
    )
    assert (ended.returncode, ended.stderr) == (
        1,
        f"waltz-{process}: $WALTZ_TLS must be on, off or a file: cannot read missing.yml: No such "
        "file or directory\n",
    )


def test_service_without_file_reads_the_environment(tmp_path: Path) -> None:
    ended = run(
        "storage",
        WALTZ_ZOOKEEPER_CONNECT_STRING="127.0.0.1:1",
        WALTZ_ZOOKEEPER_SESSION_TIMEOUT="100",
        WALTZ_CLUSTER_ROOT="/x",
        WALTZ_STORAGE_PORT="7",
        WALTZ_STORAGE_ADMIN_PORT="7",
        WALTZ_STORAGE_DIRECTORY=str(tmp_path),
        WALTZ_PROFILE="staging",
    )
    assert ended.returncode == 1
    assert "the environment: storage.port, storage.admin.port" in ended.stderr
    assert "WARNING waltz.runtime.configuration.reading: $WALTZ_PROFILE has no effect: a " in (
        ended.stderr
    )
