"""Hunt planted bugs in several processes at a time.

Each hunt has a process of its own, forked from one that has imported pytest and the libraries of
the tests, but not the product: most of the time of a short test is spent on these imports.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tests.mutants.hunt import Caught, HuntFailed, hunt, run_tests
from tests.mutants.planting import Nodes, Planted

SECONDS_OF_A_HUNT = 300.0
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
    "yaml",
]


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
    """Runs hunts, at most ``count`` at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Forking this process would copy its threads' locks.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)

    def hunt_all(self, bugs: Sequence[Planted]) -> Iterator[Hunt]:
        """Yield the hunts in the order of their ends; those that simulate begin first."""
        order = sorted(bugs, key=lambda planted: isinstance(planted.caught_by, Nodes))
        with ThreadPoolExecutor(self._count) as pool:
            for future in as_completed([pool.submit(self.hunt, planted) for planted in order]):
                yield future.result()

    def hunt(self, planted: Planted) -> Hunt:
        """Hunt for one bug in a process of its own."""
        begun = time.monotonic()
        found = self._run(planted)
        seconds = time.monotonic() - begun
        if isinstance(found, str):
            return Hunt(planted, seconds, failed=found)
        return Hunt(planted, seconds, caught=found)

    def run_unchanged(self, names: Sequence[str]) -> str:
        """Run tests without a bug; return why they do not pass, or an empty text."""
        found = self._run(Nodes(tuple(names)))
        if isinstance(found, Caught):
            return f"{found.by} fails without a bug: {found.text}"
        return found or ""

    def _run(self, task: Planted | Nodes) -> Caught | str | None:
        answers, answer = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(answer, task))
        process.start()
        answer.close()
        try:
            if not answers.poll(SECONDS_OF_A_HUNT):
                return f"no result within {SECONDS_OF_A_HUNT:g} s"
            found: Caught | str | None = answers.recv()
        except EOFError:
            process.join()
            return f"the process ended with {process.exitcode}"
        else:
            return found
        finally:
            process.kill()
            process.join()
            answers.close()


def _work(answer: Connection, task: Planted | Nodes) -> None:
    try:
        found = hunt(task) if isinstance(task, Planted) else run_tests(task.names)
    except (HuntFailed, ValueError) as problem:
        answer.send(str(problem))
    else:
        answer.send(found)
