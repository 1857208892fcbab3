"""The start and the stop of a process of a local cluster: its settings, and when it is ready."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from waltz.local import child as child_module
from waltz.local.child import ChildProcess, ProcessFailed


async def test_child_does_not_inherit_settings_of_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALTZ_STORAGE_PORT", "not a port")
    config = tmp_path / "storage.yml"
    config.write_text("storage.port: 0\n")
    child = ChildProcess(
        "storage/0", "waltz-storage", config, tmp_path / "ports.json", tmp_path / "log"
    )
    child.start()
    with pytest.raises(ProcessFailed, match=f"{config}: zookeeper.connectString") as caught:
        await child.wait_until_ready(30)
    assert "WALTZ_STORAGE_PORT" not in str(caught.value)


async def test_child_is_not_ready_by_the_ports_file_of_an_earlier_run(tmp_path: Path) -> None:
    program, ports_file = tmp_path / "program.py", tmp_path / "ports.json"
    program.write_text("raise SystemExit(3)\n")
    ports_file.write_text("{}")
    child = ChildProcess(
        "storage/0", "waltz-storage", tmp_path / "storage.yml", ports_file, tmp_path / "log"
    )
    child.start(program)
    with pytest.raises(ProcessFailed, match="it exited with status 3"):
        await child.wait_until_ready(30)


async def test_child_that_ignores_its_termination_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_STOP_TIMEOUT_S", 0.0)
    program, ports_file = tmp_path / "program.py", tmp_path / "ports.json"
    program.write_text(
        "import pathlib, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(ports_file)!r}).touch()\n"
        "signal.pause()\n"
    )
    child = ChildProcess(
        "storage/0", "waltz-storage", tmp_path / "storage.yml", ports_file, tmp_path / "log"
    )
    child.start(program)
    try:
        await child.wait_until_ready(30)
        await child.stop()
        assert child.exit_status == -signal.SIGKILL
    finally:
        child.kill()
