"""Search the command lines of running processes. Touches ``/proc``, and runs ``ps``.

`waltz.local.control` decides by the command line whether a process id still belongs to a process of
its cluster. Linux shows command lines in ``/proc``. On systems without ``/proc``, such as macOS,
``ps`` shows them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")


class CommandUnknown(RuntimeError):
    """A process runs whose command line cannot be read; the text says why."""


def command_has(pid: int, texts: Sequence[str]) -> bool:
    """Return whether the process ``pid`` runs, and its command line has one of ``texts``.

    Raises CommandUnknown.
    """
    # `/proc` may exist, but be empty. It can be used if it has the process that runs this code.
    if (_PROC / str(os.getpid()) / "cmdline").exists():
        try:
            command = (_PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            return False
        return _has(command, texts)
    if not _runs(pid):
        return False
    if _has(_read_by_ps(pid), texts):
        return True
    # Depending on the locale, `ps` shows characters outside ASCII as escape sequences.
    if not all(text.isascii() for text in texts):
        raise CommandUnknown("ps may show characters outside ASCII differently")
    return False


def _has(command: bytes, texts: Sequence[str]) -> bool:
    """Return whether ``command`` has one of ``texts``."""
    return any(os.fsencode(text) in command for text in texts)


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
