"""A process that has imported the product and the tests, and hunts each bug in a fork of itself.

Most of the time of a short test is spent on imports. Touches processes; imports the product.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.mutants.hunt import Caught, HuntFailed, find, found_at_exit, run_pytest, run_tests
from tests.mutants.planting import ROOT, SOURCE_ROOTS, Nodes, OrderedRuns, Planted, Seeds
from tests.mutants.replacing import LoadedFunctions

Found = Caught | str | None
"""What caught a bug, None if nothing did; a text says why the hunt shows nothing about the bug."""


@dataclass(frozen=True, slots=True)
class NotReplaceable:
    """The answer for a bug that changes more than functions: hunt it in a new process."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A hunt without a bug, which must catch nothing."""

    caught_by: Seeds | OrderedRuns | Nodes


Task = Planted | Unchanged


def serve(tasks: Connection, files: Sequence[str], seconds: float, temporary: str) -> None:
    """Import the product, the simulator and the test ``files``; hunt each task that arrives.

    The first message, None, says that everything is imported. The answer to a task is a `Found` or
    NotReplaceable. A hunt ends after ``seconds``, or when the other end of ``tasks`` is closed.
    ``temporary`` is the folder of temporary files.
    """
    lead_group()
    use_temporary_folder(temporary)
    functions = _import_all(files)
    context = multiprocessing.get_context("fork")
    # Without this, a collection of garbage in a fork would copy the memory of all objects.
    gc.freeze()
    tasks.send(None)
    with contextlib.suppress(EOFError):
        while True:
            task: Task = tasks.recv()
            answers, answer = context.Pipe(duplex=False)
            process = context.Process(target=_hunt, args=(answer, task, functions))
            process.start()
            answer.close()
            try:
                ready = wait([answers, tasks], seconds)
                if tasks in ready:  # No task comes before the answer: it is closed.
                    return
                tasks.send(answers.recv() if ready else f"no result within {seconds:g} s")
            except EOFError:
                process.join()
                tasks.send(found_at_exit(process.exitcode))
            finally:
                end(process)
                answers.close()


def lead_group() -> None:
    """Make this process the leader of a group: Ctrl-C at the terminal does not interrupt it."""
    os.setpgid(0, 0)


def use_temporary_folder(folder: str) -> None:
    """Let this process and those that it starts create temporary files in ``folder``."""
    os.environ["TMPDIR"] = tempfile.tempdir = folder


def end(process: BaseProcess) -> None:
    """Kill a process of which `lead_group` is the first call, and all that it has started."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):  # It has not called it yet, or all have ended.
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _import_all(files: Sequence[str]) -> LoadedFunctions:
    sys.path[:0] = [str(ROOT / folder) for folder in SOURCE_ROOTS]
    import tests.sim.nodes_run
    import tests.sim.ordered_run  # noqa: F401 - the forks use it

    if files:
        # A file that cannot be imported fails in the hunts that need it.
        run_pytest(("--collect-only",), files)
    assert threading.active_count() == 1, "a fork would not have the other threads"
    return LoadedFunctions(ROOT)


def _hunt(answer: Connection, task: Task, functions: LoadedFunctions) -> None:
    lead_group()
    gc.disable()
    try:
        answer.send(_result(task, functions))
    except (HuntFailed, ValueError) as problem:
        answer.send(str(problem))


def _result(task: Task, functions: LoadedFunctions) -> Found | NotReplaceable:
    if isinstance(task, Unchanged):
        match task.caught_by:
            case Nodes(names):
                return run_tests(names)
            case _:
                return find(task.caught_by)
    path, text = task.place()
    if not functions.replace(path, text):
        return NotReplaceable()
    return find(task.caught_by)
