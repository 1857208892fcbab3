"""Search the command lines of running processes. Touches ``/proc``, and runs ``ps``.

`waltz.local.control` decides by the command line whether a process id still belongs to a process of
its cluster. Linux shows command lines in ``/proc``. On systems without ``/proc``, such as macOS,
``ps`` shows them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")


class CommandUnknown(RuntimeError):
    """A process runs whose command line cannot be read; the text says why."""


def command_has(pid: int, text: str) -> bool:
    """Return whether the process ``pid`` runs, and its command line has ``text``.

    Raises CommandUnknown.
    """
    # `/proc` may exist, but be empty. It can be used if it has the process that runs this code.
    if (_PROC / str(os.getpid()) / "cmdline").exists():
        try:
            return os.fsencode(text) in (_PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            return False
    if not _runs(pid):
        return False
    if os.fsencode(text) in _read_by_ps(pid):
        return True
    # Depending on the locale, `ps` shows characters outside ASCII as escape sequences.
    if not text.isascii():
        raise CommandUnknown("ps may show characters outside ASCII differently")
    return False


def _runs(pid: int) -> bool:
    """Return whether a process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # The process of another user.
        return True
    return True


def _read_by_ps(pid: int) -> bytes:
    """Return what ``ps`` shows as the command line, nothing if the process has ended.

    Raises CommandUnknown.
    """
    # Without `-ww`, `ps` cuts long lines.
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    try:
        shown = subprocess.run(command, capture_output=True, check=False)
    except OSError as problem:
        raise CommandUnknown(f"there is no /proc, and ps fails: {problem.strerror}") from problem
    # For a process that has ended, `ps` also fails, but without an error message.
    if shown.returncode != 0 and shown.stderr.strip():
        reason = shown.stderr.decode(errors="replace").strip().splitlines()[0]
        raise CommandUnknown(f"there is no /proc, and ps fails: {reason}")
    return shown.stdout
