"""Plan the faults of one query in a directory that all its processes share.

They are performed in the order of the plan, each by the first process that reaches a place where it
applies: the process that renames the fault's file performs it.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from contextlib import suppress
from enum import StrEnum
from pathlib import Path


class Fault(StrEnum):
    """The kind of a fault."""

    TASK = "task"
    """The Python process of a task is killed."""
    EXECUTOR = "executor"
    """The executor that runs a task is killed."""
    DRIVER = "driver"
    """The driver is killed while tasks run."""
    COMMIT = "commit"
    """The driver is killed between the last task of a micro-batch and its commit."""
    ZOMBIE = "zombie"
    """A task stops in the middle, and continues after another attempt at it was committed."""


_OFTEN = (Fault.TASK, Fault.TASK, Fault.EXECUTOR, Fault.TASK)
_SELDOM = (Fault.COMMIT, Fault.DRIVER)

DIRECTORY = "WALTZ_TEST_FAULTS"
"""The environment variable that names the directory to all processes of a query."""


class Faults:
    """The planned and the executed faults, in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of_this_process(cls) -> Faults:
        """Return those of the query that this process works for."""
        return cls(Path(os.environ[DIRECTORY]))

    def plan(self, kills: int, seed: int) -> None:
        """Plan ``kills`` kills, and one abandoned attempt for every four of them.

        Of the first four, and of every third four after them, one is of the driver: its restarts
        take as much time as everything else.
        """
        chance = random.Random(seed)
        made: list[Fault] = []
        for number in range(0, kills, 4):
            four = list(_OFTEN)
            if number % 12 == 0:
                four[0] = _SELDOM[(number // 12 + seed) % 2]
            some = [*four[: kills - number], Fault.ZOMBIE]
            made += chance.sample(some, len(some))
        for number, fault in enumerate(made):
            (self.directory / f"planned-{number:03}-{fault}").touch()

    def claim(self, *kinds: Fault) -> tuple[int, Fault] | None:
        """Return the number and the kind of the next fault, if it is one of ``kinds``."""
        planned = sorted(self.directory.glob("planned-*"))
        if not planned:
            return None
        _, number, kind = planned[0].name.split("-")
        if Fault(kind) not in kinds:
            return None
        with suppress(FileNotFoundError):
            planned[0].rename(self.directory / f"done-{number}-{kind}")
            return int(number), Fault(kind)
        return None

    def left(self) -> int:
        """Return how many are still to be done."""
        return len(list(self.directory.glob("planned-*")))

    def done(self) -> Counter[Fault]:
        """Return how many of each kind were done."""
        return Counter(Fault(file.name.split("-")[2]) for file in self.directory.glob("done-*"))

    def committed(self, epoch: int) -> Path:
        """Return the file that says that Spark has all rows of an epoch."""
        return self.directory / f"committed-{epoch}"

    def driver_is(self, *pids: int) -> None:
        """Note the processes that are the driver."""
        (self.directory / "driver").write_text(" ".join(map(str, pids)))

    def kill_driver(self) -> None:
        """Kill the driver."""
        for pid in (self.directory / "driver").read_text().split():
            _kill(int(pid))


def kill_executor() -> None:
    """Kill the executor that started this worker: the parent of its parent, Spark's daemon."""
    daemon = os.getppid()
    # "PID (NAME) STATE PPID": a name may have blanks in it.
    after_name = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2]
    _kill(int(after_name.split()[1]))


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
