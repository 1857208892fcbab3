"""Start, await, stop and kill one storage or server as a child process. Touches processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path

_STOP_TIMEOUT_S = 15.0
"""How long a process may take to exit before it is killed."""
_POLL_S = 0.02
_SHOWN_LINES = 5
"""The most lines of the log that an error text has."""


class ProcessFailed(RuntimeError):
    """A process did not start, was not ready in time, or exited. The text says why."""


class ChildProcess:
    """A child process that runs the console script ``script`` with one settings file.

    The process writes ``ports_file`` when it is ready. Its output is appended to the file ``log``.
    """

    def __init__(self, name: str, script: str, config: Path, ports_file: Path, log: Path) -> None:
        self.name = name
        self._script = script
        self._config = config
        self._ports_file = ports_file
        self._log = log
        self._log_start = 0
        """The size of the log at the last start."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None while the process does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status of the last run; None while the process runs, or has never run."""
        return None if self._process is None else self._process.poll()

    def start(self, program: Path | None = None) -> None:
        """Start the process, if it does not run. Raises ProcessFailed if it is not installed.

        ``program`` is a Python file to run instead of the script, with the same settings file.
        """
        if self.pid is not None:
            return
        if program is None:
            command = _script_command(self._script)
        else:
            command = [sys.executable, str(program)]
        # With the file of the last run, `wait_until_ready` would return too early.
        self._ports_file.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            # In a session of its own, the child does not get Ctrl-C. The parent stops the child.
            self._process = subprocess.Popen(
                [*command, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_without_settings(os.environ),
            )

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Return when the process is ready. Raises ProcessFailed if it exits or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not self._ports_file.exists():
            if self.pid is None:
                raise ProcessFailed(f"{self.name} did not start: {self.exit_report()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{self.name} was not ready within {timeout_s:g} s: {self.exit_report()}"
                )
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Terminate the process and wait for its exit; kill it if it does not exit in time."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self.pid is not None:
            if time.monotonic() > deadline:
                self.kill()
                return
            await asyncio.sleep(_POLL_S)

    def kill(self) -> None:
        """Kill the process and wait for its exit. The effect is that of a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def exit_report(self) -> str:
        """Return the state of the process, and the last lines that its last run has logged.

        The process must have been started once: its log does not exist before.
        """
        status = self.exit_status
        state = "it runs" if status is None else f"it exited with status {status}"
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        ending = "".join(f"\n    {line}" for line in lines[-_SHOWN_LINES:]) or " nothing"
        return f"{state}. Its log, {self._log}, ends with:{ending}"


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without the variables that would override the settings file."""
    return {name: value for name, value in environment.items() if not name.startswith("WALTZ_")}


def _script_command(script: str) -> list[str]:
    """Return the command that runs a console script of this Python. Raises ProcessFailed."""
    path = Path(sysconfig.get_path("scripts")) / script
    if not path.exists():
        raise ProcessFailed(
            f"there is no {script} beside {sys.executable}: pip install 'waltz-log[local]'"
        )
    return [sys.executable, str(path)]
