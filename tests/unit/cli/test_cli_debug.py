"""``waltz debug bundle`` writes one archive, also without a cluster, and only for its owner."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app

WHERE = ("-z", "127.0.0.1:1", "--timeout", "0.1")


def contents(path: Path) -> dict[str, str]:
    """Return the files of an archive, by their paths below its directory."""
    found = {}
    with tarfile.open(path) as archive:
        for each in archive.getmembers():
            file = archive.extractfile(each)
            assert file is not None
            directory, _, name = each.name.partition("/")
            assert directory == "b"
            found[name] = file.read().decode()
    return found


def test_bundle_without_zookeeper_has_logs_settings_and_what_is_missing(tmp_path: Path) -> None:
    log, settings = tmp_path / "server.log", tmp_path / "server.yml"
    log.write_text("started\npassword=hunter2\n")
    settings.write_text("server.port: 1\nserver.tls.password: hunter2\n")
    bundle = tmp_path / "b.tar.gz"
    command = ["debug", "bundle", str(bundle), *WHERE, "--settings", str(settings)]
    command += ["--log", str(log), "--log", str(tmp_path / "missing.log")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "see errors.txt" in result.stderr
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    found = contents(bundle)
    assert found["logs/server.log"] == "started\npassword=(removed)\n"
    assert "server.port: 1" in found["settings/server.yml"]
    assert "hunter2" not in "".join(found.values())
    assert "missing.log" in found["errors.txt"]
    assert json.loads(found["health.json"])["state"] == "unknown"
    assert json.loads(found["versions.json"])["root"] == "/waltz"


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    bundle.write_text("mine")
    result = CliRunner().invoke(app, ["debug", "bundle", str(bundle), *WHERE])
    assert result.exit_code == 2
    assert bundle.read_text() == "mine"


@pytest.mark.parametrize("place", ["missing/b.tar.gz", "."])
def test_file_that_cannot_be_written_is_one_line(tmp_path: Path, place: str) -> None:
    result = CliRunner().invoke(app, ["debug", "bundle", str(tmp_path / place), *WHERE])
    assert result.exit_code != 0
    assert "Traceback" not in result.output
