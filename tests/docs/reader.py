"""Follow a page: write its files and run its commands. Touches the disk and processes."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner

from tests.docs.console import ANYTHING, CONSOLE, Block, Typed, blocks, prints, typed
from tests.docs.hosts import DATA, Host
from waltz.cli.app import app

_LONGEST_SECONDS = 300.0
_POLL_SECONDS = 0.05
_SHELL = frozenset("&|;<>$*")
_ENVIRONMENT_ONLY = ("make ", ". ")
"""Beginnings of commands that make or enter the environment in which tests run already."""

_PROGRAMS = ("waltz-storage ", "waltz-server ")
_STOP = "pkill "
_KUBECTL_LOG = re.compile(r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n", re.MULTILINE)
"""Lines that kubectl logs about its own connections, such as a frame after the end of a stream.

They depend on timing, and the pages do not show them.
"""


class Reader:
    """A reader at a prompt, in ``directory``; ``names`` maps names of the page to local names.

    Storages and servers are started on ``machines``, and stopped there, or end with `leave`.
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
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def follow(self, page: Path, *sections: str) -> int:
        """Do everything that the page says, in order; returns how many commands were typed.

        With ``sections``, what these say and nothing else.
        """
        count = 0
        for block in blocks(page):
            if sections and block.section not in sections:
                continue
            if block.title is not None:
                self._write(block.title, block)
            elif block.language == CONSOLE and block.not_typed is None:
                count += sum(self._do(each) for each in typed(block))
        return count

    def leave(self) -> None:
        """End the processes that still run."""
        for process in reversed(self._running.values()):
            process.terminate()
        for process in self._running.values():
            process.wait(_LONGEST_SECONDS)

    def _write(self, title: str, block: Block) -> None:
        (self._directory / title).write_text(self._here(block.text))

    def _here(self, text: str) -> str:
        for name, here in self._names.items():
            text = text.replace(name, here)
        return text

    def type(self, command: str) -> None:
        """Type a command that is on no page; it may print anything."""
        for each in typed(Block(CONSOLE, None, f"$ {command}\n{ANYTHING}\n", None, "")):
            self._do(each)

    def until(self, command: str) -> None:
        """Type a command again and again until it ends with status 0."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        while (ended := self._ended(self._here(command)))[0] != 0:
            assert time.monotonic() < deadline, f"$ {command}\n{ended}"
            time.sleep(_POLL_SECONDS)

    def _do(self, typed: Typed) -> int:
        """Run a command, which must print the shown output; return the number of commands run: 0 or
        1.
        """
        command = self._here(typed.command)
        machine = None if typed.machine is None else self._machines[typed.machine]
        if command.startswith(_ENVIRONMENT_ONLY):
            return 0
        if command.startswith("export "):
            self._export(command)
        elif machine is not None and command.startswith(_PROGRAMS):
            self._start(command.removesuffix("&"), machine)
        elif machine is not None and command.startswith(_STOP):
            self._stop(machine)
        else:
            names = {**self._names, **({DATA: str(machine.data)} if machine else {})}
            command = command.replace(DATA, names.get(DATA, DATA))
            printed = self._run(command, typed.status)
            assert prints(typed.shown, printed, names), (
                f"$ {typed.command}\nthe page shows:\n"
                + "\n".join(typed.shown)
                + f"\nbut:\n{printed}"
            )
        return 1

    def _export(self, command: str) -> None:
        """Set variables for all later commands; a shell evaluates their values."""
        status, out, errors = self._in_shell(f"{command} && env -0")
        assert status == 0, f"$ {command}\n{errors}"
        self._environment |= dict(pair.split("=", 1) for pair in out.split("\0") if pair)

    def _start(self, command: str, machine: Host) -> None:
        """Start the process of a machine; return when it serves."""
        machine.ports_file.unlink(missing_ok=True)
        log = self._directory / f"{machine.name}.log"
        with log.open("a") as log_file:
            process = subprocess.Popen(
                shlex.split(command),
                cwd=self._directory,
                env={**self._environment, **machine.environment},
                stdout=subprocess.DEVNULL,
                stderr=log_file,
            )
        self._running[machine.name] = process
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not machine.ports_file.exists():
            assert process.poll() is None, f"{machine.name}: {log.read_text()}"
            assert time.monotonic() < deadline, f"{machine.name}: {log.read_text()}"
            time.sleep(_POLL_SECONDS)

    def _stop(self, machine: Host) -> None:
        """End the process of a machine as SIGTERM does; return when it has ended well."""
        process = self._running.pop(machine.name)
        process.terminate()
        assert process.wait(_LONGEST_SECONDS) == 0

    def _run(self, command: str, wanted: int) -> str:
        """Return what a command prints, which must end with a status."""
        status, out, errors = self._ended(command)
        shown = f"$ {command}\n{out}{errors}"
        assert status == wanted, shown
        assert "Traceback" not in errors, shown
        return out + _KUBECTL_LOG.sub("", errors)

    def _ended(self, command: str) -> tuple[int, str, str]:
        """Run a command to its end; return its status, what it prints, and its errors.

        ``waltz`` without a shell's help runs in this process. Who is asked whether to go on says
        yes.
        """
        if not command.startswith("waltz ") or _SHELL.intersection(command):
            return self._in_shell(command)
        with contextlib.chdir(self._directory):
            arguments = shlex.split(command, comments=True)[1:]
            result = CliRunner().invoke(app, arguments, "y\n", env=self._environment)
        return result.exit_code, result.stdout, result.stderr

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
