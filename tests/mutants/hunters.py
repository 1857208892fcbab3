"""Hunt planted bugs in several processes at a time. Touches processes, threads and the clock.

Each worker has a warm process (`tests.mutants.warm`), which hunts every bug in a fork of itself. A
bug that changes more than functions, or that survives there, is hunted in a new process that
imports the changed module: a survivor is never the result of what was computed at an import.

When this process is interrupted, all others end with it, and their temporary files are removed.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from tests.mutants.hunt import Caught, HuntFailed, found_at_exit, hunt
from tests.mutants.planting import Nodes, OrderedRuns, Planted, Seeds
from tests.mutants.recorded import Record
from tests.mutants.warm import (
    Found,
    NotReplaceable,
    Task,
    Unchanged,
    end,
    lead_group,
    serve,
    use_temporary_folder,
)

SECONDS_OF_A_HUNT = 300.0
SECONDS_OF_A_SEARCH = 3600.0
"""The time limit of a hunt that may try all seeds."""

_PRELOADED = [
    "aiohttp.web",
    "cryptography.x509",
    "hypothesis.strategies",
    "kazoo.client",
    "prometheus_client",
    "pyarrow.compute",
    "pydantic_settings",
    "pyspark.sql.datasource",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "sqlalchemy.orm",
    "tests.mutants.hunt",
    "tests.mutants.warm",
    "yaml",
]
_EXPECTED_SECONDS = {Seeds: 10.0, OrderedRuns: 10.0, Nodes: 1.0}
"""How long a hunt takes for which no time is recorded."""

_INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of the hunt for a bug: how it was caught, None if it survived.

    ``failed`` is the reason if the hunt shows nothing about the bug.
    """

    planted: Planted
    seconds: float
    caught: Caught | None = None
    failed: str = ""


class Hunters:
    """Runs hunts for ``bugs``, at most ``count`` at a time; a context manager.

    ``records`` says for bugs, by name, which seed caught them and how long the hunt took. With
    ``all_seeds``, a hunt does not give up soon after the seed that is known has caught nothing.
    """

    def __init__(
        self,
        count: int,
        bugs: Sequence[Planted],
        records: Mapping[str, Record] | None = None,
        *,
        all_seeds: bool = False,
    ) -> None:
        self._bugs = bugs
        self._all_seeds = all_seeds
        self._seconds = SECONDS_OF_A_SEARCH if all_seeds else SECONDS_OF_A_HUNT
        self._records = records or {}
        # Forking this process would copy its threads' locks.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        names = {n for b in bugs if isinstance(b.caught_by, Nodes) for n in b.caught_by.names}
        self._named_tests = sorted(names)
        files = sorted({name.partition("::")[0] for name in names})
        self._temporary = tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True)
        # Tests of databases run a server as another user, which must reach its own folder.
        os.chmod(self._temporary.name, 0o711)
        self._pool = ThreadPoolExecutor(count)
        self._idle: queue.SimpleQueue[_WarmProcess] = queue.SimpleQueue()
        # When the writer is closed, the reader ends every wait of the pool's threads.
        self._interrupted, self._interrupt = self._context.Pipe(duplex=False)
        arguments = (files, self._seconds, self._temporary.name)
        self._warm = [
            _WarmProcess(self._context, arguments, self._interrupted) for _ in range(count)
        ]
        for process in self._warm:
            self._idle.put(process)

    def __enter__(self) -> Hunters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._interrupt.close()
        self._pool.shutdown(cancel_futures=True)
        for process in self._warm:
            process.close()
        self._interrupt.close()
        self._interrupted.close()
        self._temporary.cleanup()

    def hunt_all(self) -> Iterator[Hunt]:
        """Yield the hunts in the order of their ends; those that take long begin first."""
        order = sorted(self._bugs, key=self._expected_seconds, reverse=True)
        hunts = [self._pool.submit(self.hunt, planted) for planted in order]
        for future in as_completed(hunts):
            yield future.result()

    def hunt(self, planted: Planted) -> Hunt:
        """Hunt for one bug."""
        task = self._with_known_seed(planted)
        with self._idle_process() as process:
            begun = time.monotonic()
            found = process.ask(task)
            if found is None or isinstance(found, NotReplaceable):
                found = self._hunt_in_new_process(task)
            seconds = time.monotonic() - begun
        if isinstance(found, str):
            return Hunt(planted, seconds, failed=found)
        return Hunt(planted, seconds, caught=found)

    def find_without_bug(self) -> list[str]:
        """Hunt without a bug; return a text for each named test or seed that fails all the same."""
        by_file: dict[str, list[str]] = {}
        for name in self._named_tests:
            by_file.setdefault(name.partition("::")[0], []).append(name)
        hunts: list[Seeds | OrderedRuns | Nodes] = [Nodes(tuple(each)) for each in by_file.values()]
        if any(isinstance(bug.caught_by, Seeds) for bug in self._bugs):
            hunts.append(Seeds(1))
        problems = []
        for found in self._pool.map(self._ask, map(Unchanged, hunts)):
            if isinstance(found, Caught):
                problems.append(f"{found.by} fails without a bug: {found.text}")
            elif isinstance(found, str):
                problems.append(found)
        return problems

    def _expected_seconds(self, planted: Planted) -> float:
        record = self._records.get(planted.name)
        return _EXPECTED_SECONDS[type(planted.caught_by)] if record is None else record.seconds

    def _with_known_seed(self, planted: Planted) -> Planted:
        record = self._records.get(planted.name)
        if not isinstance(planted.caught_by, Seeds) or record is None or record.seed is None:
            return planted
        if self._all_seeds:
            return replace(planted, caught_by=replace(planted.caught_by, known=record.seed))
        return replace(planted, caught_by=planted.caught_by.known_to_catch(record.seed))

    def _ask(self, task: Task) -> Found | NotReplaceable:
        with self._idle_process() as process:
            return process.ask(task)

    @contextmanager
    def _idle_process(self) -> Iterator[_WarmProcess]:
        """Wait for a warm process that is idle and has imported everything."""
        process = self._idle.get()
        try:
            process.wait_until_ready()
            yield process
        finally:
            self._idle.put(process)

    def _hunt_in_new_process(self, planted: Planted) -> Found:
        answers, answer = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(answer, planted, self._temporary.name))
        process.start()
        answer.close()
        try:
            ready = wait([answers, self._interrupted], self._seconds)
            if self._interrupted in ready:
                return _INTERRUPTED
            if not ready:
                return f"no result within {self._seconds:g} s"
            found: Found = answers.recv()
        except EOFError:
            process.join()
            return found_at_exit(process.exitcode)
        else:
            return found
        finally:
            end(process)
            answers.close()


class _WarmProcess:
    """A process of `serve`, which imports while this process continues."""

    def __init__(
        self,
        context: multiprocessing.context.ForkServerContext,
        arguments: tuple[Sequence[str], float, str],
        interrupted: Connection,
    ) -> None:
        self._ready = False
        self._interrupted = interrupted
        self._tasks, tasks = context.Pipe()
        self._process = context.Process(target=serve, args=(tasks, *arguments))
        self._process.start()
        tasks.close()

    def wait_until_ready(self) -> None:
        """Wait until the process has imported everything, or has ended."""
        if not self._ready:
            with suppress(EOFError, OSError):
                self._ready = self._receive() is None

    def ask(self, task: Task) -> Found | NotReplaceable:
        """Let the process hunt ``task``; return its answer."""
        try:
            self._tasks.send(task)
            answer: Found | NotReplaceable = self._receive()
        except (EOFError, OSError):
            return "the warm process of a worker ended"
        else:
            return answer

    def close(self) -> None:
        """End the process, and the hunt that it does."""
        self._tasks.close()
        if self._ready:
            self._process.join()
        else:
            # It would notice the end only after its imports.
            end(self._process)

    def _receive(self) -> Any:
        if self._interrupted in wait([self._tasks, self._interrupted]):
            return _INTERRUPTED
        return self._tasks.recv()


def _work(answer: Connection, planted: Planted, temporary: str) -> None:
    lead_group()
    use_temporary_folder(temporary)
    try:
        found = hunt(planted)
    except (HuntFailed, ValueError) as problem:
        answer.send(str(problem))
    else:
        answer.send(found)
