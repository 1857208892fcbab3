"""Lives many seeds, on all cores: `python -m tests.sim.runner --seeds 2000`."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.sim.checker import Violation
from tests.sim.life import Life, Result
from waltz_server.recovery import Case

COUNTERS_THAT_MUST_OCCUR = (
    "client: absent",
    "client: committed",
    "client: lock_failed",
    "fault: connection cut",
    "fault: disk emptied",
    "fault: disk full",
    "fault: flush failed",
    "fault: metadata without answers",
    "fault: metadata written, answer lost",
    "fault: network partition",
    "fault: old snapshot restored",
    "fault: owner deposed",
    "fault: replicas added: one",
    "fault: replicas added: several",
    "fault: replicas removed: one",
    "fault: replicas removed: several",
    "fault: server killed",
    "fault: slow network",
    "fault: storage killed",
    "fault: storage machine lost power",
    "recovery: the vote was undecidable for a while",
    *(f"recovery: {case.value}" for case in Case),
    "server: a replica was taken back in",
    "server: a replica caught up by copying",
    "server: appends were carried into the next session",
    "server: checkpoint",
    "server: generation refused",
    "server: replica assignment changed",
    "server: session did not open",
)
"""What the default seeds must show at least once: every fault, every branch of the rules."""


@dataclass(slots=True)
class Outcome:
    """What many lives came to."""

    violations: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    fewest_committed: int = sys.maxsize
    fewest_faults: int = sys.maxsize

    def add(self, result: Result | str) -> None:
        """Count one life, or the violation that ended it."""
        self.lives += 1
        if isinstance(result, str):
            self.violations.append(result)
            return
        self.counters.update(result.counters)
        self.fewest_committed = min(self.fewest_committed, result.committed)
        self.fewest_faults = min(self.fewest_faults, result.faults)


def live(seed: int) -> Result | str:
    """Live one seed; returns the story of a violation instead of raising it."""
    try:
        return Life(seed).run()
    except Violation as violation:
        return str(violation)


def live_all(
    seeds: Iterable[int], workers: int, lived: Callable[[], None] = lambda: None
) -> Outcome:
    """Live ``seeds`` in ``workers`` processes; ``lived`` is called after each."""
    outcome = Outcome()
    with ProcessPoolExecutor(workers) as pool:
        for result in pool.map(live, seeds, chunksize=4):
            outcome.add(result)
            lived()
    return outcome


def main() -> None:
    """Live as many seeds as wanted, with a progress bar; exits with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to live")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    columns = (TextColumn("lives"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("lives", total=len(seeds))
        outcome = live_all(seeds, os.cpu_count() or 1, lambda: progress.advance(task))
    for name, count in sorted(outcome.counters.items()):
        print(f"{count:10} {name}")
    for violation in outcome.violations:
        print(f"\n{violation}")
    silent = [name for name in COUNTERS_THAT_MUST_OCCUR if not outcome.counters[name]]
    if silent:
        print(f"\nnever occurred: {silent}")
    print(f"\n{outcome.lives - len(outcome.violations)} passed, {len(outcome.violations)} failed")
    sys.exit(1 if outcome.violations or silent else 0)


if __name__ == "__main__":
    main()
