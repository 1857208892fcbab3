"""Control a running local cluster from another process. Touches files, a Unix socket, processes.

The *supervisor* is the process that runs a local cluster (`waltz.local.supervisor`). The file
``cluster.json`` in the cluster's directory names its socket. A request to this socket is one line
of JSON, ``{"do": …, "name": …}``. The response is one line, ``{"error": …}``, with null for
success. It may also have a ``remedy``: the request to send next for the same process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from waltz.local.command_lines import CommandUnknown, command_has
from waltz.local.core.plan import ClusterLayout
from waltz.runtime.cluster_file import local_command

_POLL_S = 0.05
_END_TIMEOUT_S = 10.0
"""How long to wait for the end of left-over processes after SIGTERM, and again after SIGKILL."""
_DOWN_TIMEOUT_S = 60.0
"""How long a cluster may need to stop."""


class Control(Enum):
    """The requests that a supervisor accepts."""

    STOP = "stop"
    KILL = "kill"
    START = "start"


class NotRunning(RuntimeError):
    """No cluster runs in the directory."""


class ControlFailed(RuntimeError):
    """The supervisor failed to execute a request; the text says why."""


def read_description(directory: Path) -> dict[str, Any]:
    """Return the contents of ``cluster.json``.

    Raises NotRunning if the file does not exist or is not a description of a cluster.
    """
    path = ClusterLayout(directory.absolute()).description
    try:
        description = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise NotRunning(
            f"no cluster runs in {directory} ({path} does not exist); start it with: "
            f"{local_command(directory, 'up')}"
        ) from None
    except (ValueError, RecursionError):
        description = None
    if not _is_description(description):
        raise NotRunning(
            f"{path} is not the description of a running cluster; if no cluster runs in "
            f"{directory}, remove it, and start the cluster with: {local_command(directory, 'up')}"
        )
    checked: dict[str, Any] = description
    return checked


def _is_description(value: object) -> bool:
    """Return whether ``value`` has the fields of ``cluster.json`` that every command needs."""
    match value:
        case {"processes": {**processes}}:
            return all(
                isinstance(process, dict) and {"pid", "address"} <= process.keys()
                for process in processes.values()
            )
    return False


def read_running(directory: Path) -> dict[str, Any]:
    """Return the contents of ``cluster.json``, once the cluster has started.

    Raises NotRunning, also while the cluster starts, and if the supervisor is dead. A supervisor
    that was killed leaves the file, but not its lock of the directory. Raises ControlFailed if the
    lock cannot be read.
    """
    description = read_description(directory)
    if not _has_supervisor(directory):
        raise NotRunning(
            f"the supervisor of the cluster in {directory} has ended; "
            f"end its remaining processes with: {local_command(directory, 'down')}"
        )
    if _is_starting(description):
        raise NotRunning(_starting_text(directory))
    return description


def _is_starting(description: Mapping[str, Any]) -> bool:
    """Return whether the cluster had not started yet when its supervisor wrote ``description``."""
    return description.get("control") is None


def _starting_text(directory: Path) -> str:
    """Return the error text for a command that needs a cluster that has started."""
    return (
        f"the cluster in {directory} is starting; run the same command again when it is up, or "
        f"stop it with: {local_command(directory, 'down')}"
    )


async def send_control(directory: Path, request: Control, name: str = "") -> None:
    """Send a request to the supervisor of the cluster in ``directory``, and wait for its response.

    ``name`` is the name of the process to kill or to start. Raises NotRunning, ControlFailed.
    """
    description = read_description(directory)
    socket_path = description.get("control")
    try:
        # Without a socket the path is None; connecting to an empty path fails with an OSError.
        reader, writer = await asyncio.open_unix_connection(socket_path or "")
    except OSError as problem:
        if _is_starting(description) and _has_supervisor(directory):
            raise NotRunning(_starting_text(directory)) from problem
        raise NotRunning(
            f"the supervisor of the cluster in {directory} does not answer ({problem.strerror}); "
            f"end its remaining processes with: {local_command(directory, 'down')}"
        ) from problem
    try:
        writer.write(json.dumps({"do": request.value, "name": name}).encode() + b"\n")
        line = await reader.readline()
    except ConnectionError:
        # The supervisor closed its socket before it accepted the connection.
        line = b""
    finally:
        writer.close()
    if not line.endswith(b"\n"):
        line = b""  # The supervisor ended in the middle of its answer.
    # A supervisor that stops may end before it has answered: then the missing answer is success.
    if not line and request is not Control.STOP:
        raise ControlFailed("the supervisor ended before it answered")
    response = json.loads(line) if line else {"error": None}
    error, remedy = response["error"], response.get("remedy")
    if error is None:
        return
    if remedy is not None:
        # The command is formed here, so that it names the directory as the user does. The
        # supervisor knows only the absolute path.
        error += f"; {remedy} it with: {local_command(directory, remedy, name)}"
    raise ControlFailed(error)


def request_stop(directory: Path) -> bool:
    """Request the supervisor to stop; return False if it has died and left ``cluster.json``.

    True: the supervisor has accepted the request, and stops the cluster now (`wait_until_down`), or
    the cluster is down already.

    While a cluster starts or stops, its supervisor has no socket, but holds the lock of the
    directory. Then the request is repeated until the supervisor accepts it or the cluster is down.

    Raises NotRunning if the directory has no running cluster. Raises ControlFailed if the
    supervisor accepts no request within `_DOWN_TIMEOUT_S`.
    """
    # Raises NotRunning if there is no cluster. Below, NotRunning of `send_control` may also mean
    # that the supervisor does not accept requests yet, or any more.
    read_description(directory)
    accepted = False

    def send_stop() -> bool:
        """Send the request; return whether it was accepted, or no supervisor runs any more."""
        nonlocal accepted
        try:
            asyncio.run(send_control(directory, Control.STOP))
        except NotRunning:
            return not _is_supervised(directory)
        accepted = True
        return True

    if not _wait_until(send_stop, _DOWN_TIMEOUT_S):
        raise ControlFailed(
            f"the supervisor of the cluster in {directory} accepted no request within "
            f"{_DOWN_TIMEOUT_S:g} s; run the same command again"
        )
    return accepted or not _is_described(directory)


def find_left_over(directory: Path) -> dict[str, int]:
    """Return the ids of the processes in ``cluster.json`` that still run, by name.

    Raises NotRunning, and ControlFailed if the system does not show whether a process that runs is
    one of the cluster.
    """
    description = read_description(directory)
    left_over: dict[str, int] = {}
    unknown: list[str] = []
    why = ""
    for name, process in description["processes"].items():
        pid = process["pid"]
        try:
            if pid and _belongs(pid, directory):
                left_over[name] = pid
        except CommandUnknown as problem:
            unknown.append(f"{name} (process {pid})")
            why = str(problem)
    if unknown:
        raise ControlFailed(
            f"cannot check which of these processes still belong to the cluster in {directory}: "
            f"{', '.join(unknown)} ({why}); end those that do, and run the same command again; if "
            f"none does, remove {ClusterLayout(directory.absolute()).description}"
        )
    return left_over


def end_left_over(directory: Path) -> dict[str, int]:
    """End the processes that a dead supervisor left, and delete ``cluster.json`` and its socket.

    Return the ids of the processes by name. Raises NotRunning. Raises ControlFailed as
    `find_left_over` does; then the file stays, because it has the ids of the processes.
    """
    left_over = find_left_over(directory)
    socket = Path(read_description(directory).get("control") or "")
    # SIGKILL is for the processes that SIGTERM has not ended in time.
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid in find_left_over(directory).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        _wait_until(lambda: not find_left_over(directory), _END_TIMEOUT_S)
    if socket.is_socket():
        with contextlib.suppress(OSError):
            socket.unlink()
            socket.parent.rmdir()  # The supervisor has made this folder for its socket.
    ClusterLayout(directory.absolute()).description.unlink(missing_ok=True)
    return left_over


def wait_until_down(directory: Path) -> bool:
    """Wait until the supervisor of ``directory`` has stopped its cluster.

    Return False if the supervisor has died before that: then `end_left_over` ends the processes.
    Raises ControlFailed if the cluster still runs after `_DOWN_TIMEOUT_S`.
    """
    if not _wait_until(lambda: not _is_supervised(directory), _DOWN_TIMEOUT_S):
        raise ControlFailed(f"the cluster in {directory} did not stop within {_DOWN_TIMEOUT_S:g} s")
    return not _is_described(directory)


def _is_supervised(directory: Path) -> bool:
    """Return whether a supervisor runs that has not stopped its cluster yet.

    If this is false, the cluster is down, or its supervisor has died and left ``cluster.json``.
    """
    # The order matters. A supervisor that stops deletes the file before it releases the lock. So if
    # the lock is held, and afterwards the file exists, the cluster was not down when the lock was
    # read.
    return _has_supervisor(directory) and _is_described(directory)


def _is_described(directory: Path) -> bool:
    """Return whether ``directory`` has the file ``cluster.json``."""
    return ClusterLayout(directory.absolute()).description.exists()


def _has_supervisor(directory: Path) -> bool:
    """Return whether a process holds the exclusive lock of ``directory``, as supervisors do.

    Raises ControlFailed if the file system does not show it.
    """
    lock_path = ClusterLayout(directory.absolute()).lock
    with contextlib.suppress(FileNotFoundError), lock_path.open() as lock:
        try:
            # This lock is shared. With exclusive locks, two commands that call this function at the
            # same time would take each other for a supervisor.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as problem:
            raise ControlFailed(
                f"cannot check whether the supervisor of the cluster in {directory} runs: "
                f"{lock_path} cannot be locked ({problem.strerror}); mount its file system with "
                "file locks, and run the same command again"
            ) from problem
    return False


def _wait_until(reached: Callable[[], bool], seconds: float) -> bool:
    """Call ``reached`` until it returns true, for at most ``seconds``; return whether it did."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _belongs(pid: int, directory: Path) -> bool:
    """Return whether the process was started for ``directory``.

    The system may have reused the id of a process that has ended. Raises CommandUnknown.
    """
    # The command line of every process of a cluster has a file below the resolved path of the
    # directory (`ClusterDirectory`).
    return command_has(pid, f"{directory.resolve()}/")
