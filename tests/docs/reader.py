"""Does what a page tells its reader to: writes its files, types its commands. Disk, processes."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from typer.testing import CliRunner

from tests.docs.console import ANYTHING, Block, blocks, prints, typed
from tests.docs.hosts import Host
from waltz.cli.app import app

_LONGEST_SECONDS = 60.0
_POLL_SECONDS = 0.05
_SHELL = frozenset("&|;<>")
_ENVIRONMENT_ONLY = ("make ", ". ")
"""Beginnings of commands that make or enter the environment in which tests run already."""


class Reader:
    """A reader at a prompt, in ``directory``; ``names`` are what the page calls things here.

    Storages and servers are started on ``machines``, and end with `leave`.
    """

    def __init__(
        self, directory: Path, names: Mapping[str, str], machines: Mapping[str, Host]
    ) -> None:
        self._directory = directory
        self._names = names
        self._machines = machines
        scripts = sysconfig.get_path("scripts")
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WALTZ_")
        } | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
        self._running: list[subprocess.Popen[str]] = []

    def follow(self, page: Path) -> int:
        """Do everything that the page says, in order; returns how many commands were typed."""
        count = 0
        for block in blocks(page):
            if block.title is not None:
                self._write(block.title, block)
            elif block.language == "console":
                count += sum(self.type(each.command, each.shown) for each in typed(block))
        return count

    def leave(self) -> None:
        """End what was left running."""
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            process.wait(_LONGEST_SECONDS)

    def _write(self, title: str, block: Block) -> None:
        (self._directory / title).write_text(self._here(block.text))

    def _here(self, text: str) -> str:
        for name, here in self._names.items():
            text = text.replace(name, here)
        return text

    def type(self, command: str, shown: Sequence[str] = (ANYTHING,)) -> int:
        """Type a command, which must print what is ``shown``; returns how many were run: 0 or 1."""
        here = self._here(command)
        if here.startswith(_ENVIRONMENT_ONLY):
            return 0
        if here.startswith("export "):
            pairs = (word.split("=", 1) for word in shlex.split(here)[1:])
            self._environment |= dict(pairs)
            return 0
        if here.startswith(("waltz-storage ", "waltz-server ")):
            self._start(here)
            return 1
        printed = self._run(here)
        assert prints(shown, printed, self._names), (
            f"$ {command}\nthe page shows:\n" + "\n".join(shown) + f"\nbut:\n{printed}"
        )
        return 1

    def _start(self, command: str) -> None:
        """Start a process as ``waltz-storage FILE &  # on MACHINE``; return when it serves."""
        program, _, name = command.partition("&  # on ")
        machine = self._machines[name]
        process = subprocess.Popen(
            shlex.split(program),
            cwd=self._directory,
            env={**self._environment, **machine.environment},
            stdout=subprocess.DEVNULL,
            stderr=(self._directory / f"{name}.log").open("w"),
            text=True,
        )
        self._running.append(process)
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not machine.ports_file.exists():
            said = f"{name}: {(self._directory / f'{name}.log').read_text()}"
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(_POLL_SECONDS)

    def _run(self, command: str) -> str:
        """Return what a command prints; ``waltz`` without a shell's help runs in this process."""
        if command.startswith("waltz ") and not _SHELL.intersection(command):
            with contextlib.chdir(self._directory):
                arguments = shlex.split(command)[1:]
                result = CliRunner().invoke(app, arguments, env=self._environment)
            status, out, errors = result.exit_code, result.stdout, result.stderr
        else:
            status, out, errors = self._in_shell(command)
        said = f"$ {command}\n{out}{errors}"
        assert status == 0, said
        assert "Traceback" not in errors, said
        return out + errors

    def _in_shell(self, command: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr
