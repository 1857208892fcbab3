"""Test that the settings of a process of a local cluster come only from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

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
