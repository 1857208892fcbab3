"""Test that a local cluster runs exactly while its supervisor does."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.local_directories import started, write_description
from waltz.cli.app import app
from waltz.cli.local.commands import _is_controllable
from waltz.local import (
    ClusterLayout,
    Control,
    ControlFailed,
    command_lines,
    control,
    send_control,
)


@pytest.fixture
def described(tmp_path: Path) -> ClusterLayout:
    """The directory of a cluster that has written ``cluster.json``."""
    layout = ClusterLayout(tmp_path)
    write_description(layout, {}, None)
    layout.lock.touch()
    return layout


@pytest.fixture
def storage(described: ClusterLayout) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ``cluster.json`` describes as a storage of the cluster."""
    with started(str(described.config("storage/0"))) as process:
        write_description(described, {"storage/0": process.pid}, None)
        yield process
        process.kill()


def status(layout: ClusterLayout) -> Result:
    arguments = ["local", "status", "-o", "json", "--dir", str(layout.directory)]
    return CliRunner().invoke(app, arguments)


def down(layout: ClusterLayout) -> Result:
    return CliRunner().invoke(app, ["local", "down", "--dir", str(layout.directory)])


def test_status_of_running_cluster_shows_its_processes(described: ClusterLayout) -> None:
    write_description(described, {}, "/s")
    with described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shown = status(described)
    assert shown.exit_code == 0
    assert list(json.loads(shown.stdout)["processes"]) == ["zookeeper", "storage/0", "server/0"]


@pytest.mark.parametrize("command", ["status", "kill storage/0", "start storage/0"])
def test_command_during_the_start_says_that_the_cluster_starts(
    described: ClusterLayout, command: str
) -> None:
    with described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        where = ["--dir", str(described.directory)]
        refused = CliRunner().invoke(app, ["local", *command.split(), *where])
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"waltz: the cluster in {described.directory} is starting; run the same command again when "
        f"it is up, or stop it with: waltz local down --dir {described.directory}\n"
    )


@pytest.mark.parametrize("lock_exists", [True, False])
def test_status_after_supervisor_was_killed_has_exit_status_1(
    described: ClusterLayout, lock_exists: bool
) -> None:
    if not lock_exists:
        described.lock.unlink()
    shown = status(described)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert "the supervisor of the cluster" in shown.stderr
    assert f"waltz local down --dir {described.directory}" in shown.stderr


def test_status_without_cluster_has_exit_status_1(tmp_path: Path) -> None:
    shown = status(ClusterLayout(tmp_path))
    assert shown.exit_code == 1
    assert "no cluster runs in" in shown.stderr


def test_second_down_during_a_stop_waits_and_signals_no_process(
    described: ClusterLayout, storage: subprocess.Popen[bytes]
) -> None:
    with described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status(
            described
        )  # It imports what the command needs, so that the stop ends after it begins.
        stopping = threading.Timer(1.5, described.description.unlink)
        stopping.start()
        ended = down(described)
        stopping.join()
    assert (ended.exit_code, ended.stderr) == (0, "stopped\n")
    assert storage.poll() is None


def test_down_before_the_socket_opens_stops_the_cluster(
    described: ClusterLayout, storage: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    requests: list[dict[str, str]] = []

    def supervise_late() -> None:
        time.sleep(0.3)
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(30)
            server.bind(str(tmp_path / "s"))
            server.listen()
            write_description(described, {"storage/0": storage.pid}, str(tmp_path / "s"))
            connection, _ = server.accept()
            with connection:
                requests.append(json.loads(connection.recv(1000)))
                described.description.unlink()

    with described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        supervisor = threading.Thread(target=supervise_late)
        supervisor.start()
        ended = down(described)
        supervisor.join()
    assert (ended.exit_code, ended.stderr) == (0, "stopped\n")
    assert requests == [{"do": "stop", "name": ""}]
    assert storage.poll() is None


def test_down_after_supervisor_was_killed_ends_its_processes(
    described: ClusterLayout, storage: subprocess.Popen[bytes]
) -> None:
    # Without this thread, the process that has ended would stay as a zombie of the test.
    reaper = threading.Thread(target=storage.wait)
    reaper.start()
    ended = down(described)
    reaper.join()
    assert ended.exit_code == 0
    assert "ended the processes of a dead supervisor: storage/0" in ended.stderr
    assert not described.description.exists()


def test_down_ends_the_processes_of_a_supervisor_that_dies_during_the_stop(
    described: ClusterLayout, storage: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    reaper = threading.Thread(target=storage.wait)
    reaper.start()
    with socket.socket(socket.AF_UNIX) as server, described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server.settimeout(30)
        server.bind(str(tmp_path / "s"))
        server.listen()
        write_description(described, {"storage/0": storage.pid}, str(tmp_path / "s"))

        def die_after_the_request() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                fcntl.flock(lock, fcntl.LOCK_UN)

        supervisor = threading.Thread(target=die_after_the_request)
        supervisor.start()
        ended = down(described)
        supervisor.join()
    reaper.join()
    assert ended.exit_code == 0
    assert "ended the processes of a dead supervisor: storage/0" in ended.stderr
    assert not described.description.exists()


@pytest.mark.parametrize("request_", Control)
async def test_request_to_socket_that_closes_is_not_answered(
    described: ClusterLayout, tmp_path: Path, request_: Control
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        write_description(described, {}, str(tmp_path / "s"))
        sending = asyncio.create_task(send_control(described.directory, request_))
        await asyncio.sleep(0.1)
    if request_ is Control.STOP:
        await sending
    else:
        with pytest.raises(ControlFailed, match="the supervisor ended before it answered"):
            await sending


async def test_error_with_a_remedy_names_the_command_for_the_directory(
    described: ClusterLayout, tmp_path: Path
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert json.loads(await reader.readline()) == {"do": "kill", "name": "storage/1"}
        writer.write(b'{"error": "storage/1 is not running", "remedy": "start"}\n')
        writer.close()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(refuse, path):
        write_description(described, {}, path)
        with pytest.raises(ControlFailed) as failed:
            await send_control(described.directory, Control.KILL, "storage/1")
    command = f"waltz local start storage/1 --dir {described.directory}"
    assert str(failed.value) == f"storage/1 is not running; start it with: {command}"


def up_detached(directory: Path) -> str:
    """Return what ``waltz local up --detach`` prints while it fails."""
    command = [sys.executable, "-m", "waltz.cli", "local", "up", "--detach", "--dir"]
    result = subprocess.run([*command, str(directory)], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize("is_complete", [True, False])
def test_up_of_running_cluster_says_only_that_and_what_is_not_running(
    described: ClusterLayout, is_complete: bool
) -> None:
    pids = {"zookeeper": 1, "storage/0": 2, "server/0": 3}
    if not is_complete:
        del pids["storage/0"]
    write_description(described, pids, "/s")
    with described.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        printed = up_detached(described.directory)
    where = f"--dir {described.directory}"
    running = f"waltz: the cluster in {described.directory} is running already"
    expected = (
        f"{running}; stop it with: waltz local down {where}"
        if is_complete
        else f"{running}, without storage/0; start what is missing with: "
        f"waltz local start storage/0 {where}"
    )
    assert printed == f"{expected}\n"


def test_up_whose_supervisor_gives_no_reason_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = CliRunner().invoke(app, ["local", "up", "--detach", "--dir", str(tmp_path)])
    log = ClusterLayout(tmp_path).log("supervisor")
    assert result.stderr == f"waltz: the cluster did not start; see {log}\n"


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/waltz"])
def test_up_in_impossible_directory_fails_and_names_the_option(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / place
    result = CliRunner().invoke(app, ["local", "up", "--dir", str(path)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"waltz: cannot create the directory {path} (")
    assert result.stderr.endswith("); choose another with --dir\n")


def test_process_of_a_directory_whose_path_begins_alike_is_not_left_over(
    described: ClusterLayout, tmp_path: Path
) -> None:
    """The system may have given the id of an ended process to a process of another cluster."""
    with started(f"{tmp_path}-2/config/storage-0.yml") as storage:
        write_description(described, {"storage/0": storage.pid}, None)
        assert control.find_left_over(described.directory) == {}


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
def test_left_over_process_is_found_by_ps_without_proc(
    described: ClusterLayout,
    storage: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_lines, "_PROC", tmp_path / "proc")
    with started(f"{tmp_path}-2/config/server-0.yml") as server:
        pids = {"storage/0": storage.pid, "server/0": server.pid}
        write_description(described, pids, None)
        assert control.find_left_over(described.directory) == {"storage/0": storage.pid}
        with pytest.raises(command_lines.CommandUnknown, match="outside ASCII"):
            command_lines.command_has(server.pid, "/tmp/größe/")
    storage.kill()
    storage.wait()
    assert control.find_left_over(described.directory) == {}


@pytest.mark.parametrize(
    ("ps", "says"), [(None, "No such file or directory"), ("echo no /dev/kmem >&2; exit 1", "kmem")]
)
def test_down_that_cannot_check_a_process_keeps_the_description(
    described: ClusterLayout,
    storage: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ps: str | None,
    says: str,
) -> None:
    monkeypatch.setattr(command_lines, "_PROC", tmp_path / "proc")
    monkeypatch.setenv("PATH", str(tmp_path))
    if ps is not None:
        (tmp_path / "ps").write_text(f"#!/bin/sh\n{ps}\n")
        (tmp_path / "ps").chmod(0o700)
    refused = down(described)
    assert refused.exit_code == 1
    assert f"storage/0 (process {storage.pid})" in refused.stderr
    assert says in refused.stderr
    assert described.description.exists()
    assert storage.poll() is None
    storage.kill()
    storage.wait()
    assert down(described).exit_code == 0
    assert not described.description.exists()


def test_process_that_ignores_sigterm_is_killed(
    described: ClusterLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_END_TIMEOUT_S", 0.1)
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    with started(str(described.config("storage/0")), deaf) as storage:
        write_description(described, {"storage/0": storage.pid}, None)
        assert control.end_left_over(described.directory) == {"storage/0": storage.pid}
        assert storage.stdin is not None
        storage.stdin.close()  # Without the second signal, the process would now end by itself.
        assert storage.wait() == -signal.SIGKILL


def test_socket_of_a_dead_supervisor_is_removed_with_its_folder(
    described: ClusterLayout,
) -> None:
    with tempfile.TemporaryDirectory(prefix="waltz-") as above:  # A socket's path must be short.
        folder = Path(above) / "of-the-supervisor"
        folder.mkdir()
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(folder / "control"))
        listening.close()
        write_description(described, {}, str(folder / "control"))
        control.end_left_over(described.directory)
        assert not folder.exists()


@pytest.mark.parametrize(("pid", "socket_path"), [(1, "/s"), (17, None)])
def test_cluster_is_up_when_its_own_supervisor_accepts_commands(
    described: ClusterLayout, pid: int, socket_path: str | None
) -> None:
    """A supervisor that was killed has left the file, with its own id and its old socket."""
    write_description(described, {"supervisor": pid}, socket_path)
    assert not _is_controllable(described.directory, 17)
    write_description(described, {"supervisor": 17}, "/s")
    assert _is_controllable(described.directory, 17)
