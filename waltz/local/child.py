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
_POLL_S = 0.02
_SHOWN_LINES = 5


class ProcessFailed(RuntimeError):
    """A process of the cluster did not start, or ended; the text has its last lines of output."""


class ChildProcess:
    """The console script ``script`` with one settings file.

    It is ready when ``ports_file`` exists: its settings make it write the file then.
    """

    def __init__(self, name: str, script: str, config: Path, ports_file: Path, log: Path) -> None:
        self.name = name
        self._script = script
        self._config = config
        self._ports_file = ports_file
        self._log = log
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process else None

    @property
    def exit_status(self) -> int | None:
        """How its last run ended; None if it has not."""
        return None if self._process is None else self._process.poll()

    def start(self, program: Path | None = None) -> None:
        """Start it, if it does not run. Raises ProcessFailed if it is not installed.

        ``program``, in Python, runs instead of the script, with the same settings.
        """
        if self.pid is not None:
            return
        command = _find(self._script) if program is None else [sys.executable, str(program)]
        self._ports_file.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            # In a session of its own: Ctrl-C must reach only the parent, which then stops it.
            self._process = subprocess.Popen(
                [*command, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_without_settings(os.environ),
            )

    async def ready(self, timeout_s: float) -> None:
        """Return when it serves. Raises ProcessFailed if it ended or took too long."""
        deadline = time.monotonic() + timeout_s
        while not self._ports_file.exists():
            if self.pid is None:
                raise ProcessFailed(f"{self.name} did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{self.name} was not ready within {timeout_s:g} s: {self.last_words()}"
                )
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """End it in good order, or by force if it does not react."""
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
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """Return how it ended and the last lines of its log since it was started."""
        status = self.exit_status
        ended = "it runs" if status is None else f"it exited with status {status}"
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        ending = "".join(f"\n    {line}" for line in lines[-_SHOWN_LINES:]) or " nothing"
        return f"{ended}. Its log, {self._log}, ends with:{ending}"


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without what would count more than the file of settings."""
    return {name: value for name, value in environment.items() if not name.startswith("WALTZ_")}


def _find(script: str) -> list[str]:
    path = Path(sysconfig.get_path("scripts")) / script
    if not path.exists():
        raise ProcessFailed(
            f"there is no {script} beside {sys.executable}; install waltz with its server and "
            "storage extras"
        )
    return [sys.executable, str(path)]
