"""Run one operator after another; end each by SIGKILL after its first step. Ends nothing else.

Each operator is a process of its own, forked by this program. So the operator's modules, whose
import is most of an operator's start, are imported only once. The program prints a line after each
operator: ``killed``, or ``ended by itself``.

A ConfigMap mounts this program into the operator's own image, so that the product contains no fault
injection. The image does not contain the package ``e2e``, so this program imports nothing from it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Protocol

from waltz_operator.main import main
from waltz_operator.shell.executor import Executor


class Performer(Protocol):
    """An object that performs steps, as `Executor` does."""

    async def perform(self, step: Any) -> None:
        """Perform one step."""


def kill_after(steps: int, performer: type[Performer] = Executor) -> None:
    """Change ``performer`` so that it kills this process after ``steps`` steps."""
    perform = performer.perform
    performed = 0

    async def perform_and_count(self: Performer, step: Any) -> None:
        nonlocal performed
        await perform(self, step)
        performed += 1
        if performed == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    performer.perform = perform_and_count  # type: ignore[method-assign]


def run_operator() -> bool:
    """Run an operator in a new process to its end; return whether it was killed."""
    child = os.fork()
    if child == 0:
        kill_after(1)
        main()
        # os._exit runs no exit handlers: those of a forked process belong to its parent.
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


if __name__ == "__main__":
    while True:
        was_killed = run_operator()
        sys.stdout.write("killed\n" if was_killed else "ended by itself\n")
        sys.stdout.flush()
