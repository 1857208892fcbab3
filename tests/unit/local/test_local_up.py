"""What ``waltz local up`` prints while a cluster starts, and what it does if it is interrupted."""

from __future__ import annotations

import errno
import io
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_directories import started, write_description
from waltz.cli.local import commands
from waltz.local import UP, ClusterLayout, Shape


@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError(errno.EIO, "I/O error")]
)
def test_progress_that_cannot_be_printed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise error

    say = commands._progress_printer()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Closed())
        say("not printed")
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    say("printed")
    assert printed.getvalue().endswith("s  printed\n")
    assert printed.getvalue().count("\n") == 1


def test_interrupted_start_in_the_background_ends_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    supervisors: list[subprocess.Popen[bytes]] = []
    launch = subprocess.Popen

    def launch_supervisor(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        supervisors.append(launch(command, **options))
        return supervisors[-1]

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(subprocess, "Popen", launch_supervisor)
    monkeypatch.setattr(commands, "_is_controllable", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commands._up_in_background(tmp_path, Shape(), 6000)
    (supervisor,) = supervisors
    try:
        assert supervisor.wait(10) == -signal.SIGTERM
    finally:
        supervisor.kill()
        supervisor.wait()


def test_start_in_the_background_shows_what_the_supervisor_says_after_it_takes_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "supervisor.log"
    log.write_text("waiting until every partition has recovered\n")
    with started("supervisor") as supervisor, ThreadPoolExecutor(1) as pool:
        layout = ClusterLayout(tmp_path)
        write_description(layout, {"supervisor": supervisor.pid}, "control")
        description = json.loads(layout.description.read_text())
        layout.description.write_text(json.dumps(description | {"supervisor": supervisor.pid}))
        awaiting = pool.submit(commands._await_controllable, tmp_path, supervisor, log, 0)
        wait([awaiting], timeout=0.2)
        assert not awaiting.done()
        with log.open("a") as output:
            output.write(f"{UP}\n")
        awaiting.result()
    assert capsys.readouterr().err.splitlines()[-1] == UP
