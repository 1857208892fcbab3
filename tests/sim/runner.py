"""Run many seeds on all cores: `python -m tests.sim.runner --seeds 2000`.

`--seed N` repeats one seed exactly; with `--history` it also prints its events.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.sim.guarantees import Violation
from tests.sim.nodes_run import NodesRun, run_nodes_seed
from tests.sim.sim_cluster import Result
from waltz_server.core.replication.replica_roles import RecoveryCase

COUNTERS_THAT_MUST_OCCUR = (
    "client: absent",
    "client: batch committed except refused appends",
    "client: append answered absent",
    "client: append answered committed",
    "client: append answered refused",
    "client: batch cut to a prefix",
    "client: batch with an append absent",
    "client: batch with an append committed",
    "client: batch with an append refused",
    "client: batch with an append unknown",
    "client: committed",
    "client: data read",
    "client: headers read",
    "client: lock_failed",
    "client: no headers",
    "client: no records",
    "client: range not supported",
    "client: range refused: not here",
    "client: range refused: not open",
    "client: records read",
    "client: right records of a disk",
    "client: timed out, in doubt",
    "client: timed out, not in the log",
    "client: unsupported",
    "fault: connection cut",
    "fault: connection cut inside a frame",
    "fault: disconnected from ZooKeeper",
    "fault: disk emptied",
    "fault: disk full",
    "fault: flush failed",
    "fault: metadata without answers",
    "fault: metadata written, answer lost",
    "fault: network partition",
    "fault: old snapshot restored",
    "fault: one replica ran ahead",
    "fault: owner replaced",
    "fault: owner replaced and back",
    "fault: owner in a new generation",
    "fault: power lost in the middle of a change",
    "fault: replica that ran ahead assigned again",
    "fault: replicas added: one",
    "fault: replicas added: several",
    "fault: replicas fell behind",
    "fault: replicas removed: one",
    "fault: replicas removed: several",
    "fault: server killed",
    "fault: session expired",
    "fault: slow network",
    "fault: storage killed",
    "fault: storage machine lost power",
    "model: an event of a store session is allowed",
    "recovery: the vote was undecidable for a while",
    *(f"recovery: {case.value}" for case in RecoveryCase),
    "server: a range read from a storage",
    "server: a range read from an older storage",
    "server: a read waited and was answered",
    "server: a read waited and timed out",
    "server: a read waited and was refused",
    "server: a replica rejoined a session",
    "server: a replica caught up by copying",
    "server: appends were in doubt until the next session",
    "server: checkpoint",
    "server: generation refused",
    "server: replica assignment changed",
    "server: session did not open",
    "storage: a log with an index checkpoint",
    "storage: a round of several partitions",
    "storage: started with the engine files",
    "storage: started with the engine wal",
)
"""Counters that the default seeds must raise at least once: every fault, every branch."""

_ROT_COUNTERS = ("rot: ", "fault: bit flipped", "storage: ")
"""The beginnings of the counters that are printed of the runs with rot."""

_DETAIL_SECONDS = 0.25
"""The length of the end of a run of which the history is printed with details."""

_ROT_SEEDS = 20
_NEW_OBJECTS = 100_000
"""How many objects are added before the garbage among them is collected; the default is 700."""


@dataclass(slots=True)
class Outcome:
    """The results of many runs."""

    violations: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    fewest_committed: int = sys.maxsize
    fewest_faults: int = sys.maxsize

    def add(self, result: Result) -> None:
        """Add the result of one run."""
        self.runs += 1
        self.counters.update(result.counters)
        if result.violation is not None:
            self.violations.append(result.violation)
            return
        self.fewest_committed = min(self.fewest_committed, result.committed)
        self.fewest_faults = min(self.fewest_faults, result.faults)

    def missing_counters(self) -> list[str]:
        """Return the counters that must occur, and did not."""
        return [name for name in COUNTERS_THAT_MUST_OCCUR if not self.counters[name]]


def run_seeds(
    seeds: Iterable[int],
    workers: int,
    finished: Callable[[], None] = lambda: None,
    *,
    rot: bool = False,
) -> Outcome:
    """Run ``seeds`` in ``workers`` processes; ``finished`` is called after each."""
    outcome = Outcome()
    run = partial(run_nodes_seed, rot=rot)
    with ProcessPoolExecutor(workers, initializer=_collect_garbage_rarely) as pool:
        for result in pool.map(run, seeds, chunksize=4):
            outcome.add(result)
            finished()
    return outcome


def replay(seed: int, *, rot: bool, history: bool) -> str:
    """Run a seed again; return its result, after its history with details of the end."""
    run = NodesRun(seed, rot=rot, detailed=history)
    try:
        result = run.run()
        end = f"all guarantees held: {result.committed} committed, {result.faults} faults"
    except Violation as violation:
        end = f"VIOLATED: {violation.guarantee.value}\n{violation}\n{run.state()}"
    text = f"seed {seed}: {len(run.storages)} storages"
    for partition in run.partitions:
        text += f"\npartition {partition.partition}: {len(partition.servers)} servers, "
        text += str(partition.settings)
    if history:
        text += f"\n{run.history.render(run.clock.now, _DETAIL_SECONDS)}\n"
    return f"{text}\n{end}"


def main() -> None:
    """Run seeds with a progress bar; exits with 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--rot",
        type=int,
        default=None,
        help=f"how many of them to run again with bits that flip on disks, {_ROT_SEEDS} if not "
        "given; the storages must repair them",
    )
    parser.add_argument("--seed", type=int, help="run only this one, with rot if --rot is given")
    parser.add_argument("--history", action="store_true", help="print the events of --seed")
    arguments = parser.parse_args()
    if arguments.history and arguments.seed is None:
        parser.error("--history prints the events of one seed: name it with --seed")
    if arguments.seed is not None:
        print(replay(arguments.seed, rot=bool(arguments.rot), history=arguments.history))
        return
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    outcome = _with_progress("runs", seeds, rot=False)
    rotten_seeds = seeds[: _ROT_SEEDS if arguments.rot is None else arguments.rot]
    rotten = _with_progress("runs with rot", rotten_seeds, rot=True)
    for name, count in sorted(outcome.counters.items()):
        print(f"{count:10} {name}")
    if rotten.runs:
        print(f"\n{rotten.runs} runs with rot:")
    for name, count in sorted(rotten.counters.items()):
        if name.startswith(_ROT_COUNTERS):
            print(f"{count:10} {name}")
    for violation in (*outcome.violations, *(f"with rot: {each}" for each in rotten.violations)):
        print(f"\n{violation}")
    failed = len(outcome.violations) + len(rotten.violations)
    if failed:
        print("\nto print the events: python -m tests.sim.runner --history --seed … [--rot 1]")
    missing = outcome.missing_counters()
    if missing:
        print(f"\nnever occurred: {missing}")
    print(f"\n{outcome.runs + rotten.runs - failed} passed, {failed} failed")
    sys.exit(1 if failed or missing else 0)


def _collect_garbage_rarely() -> None:
    """Spend less of a worker's time on collections of garbage: there is one after each run."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def _with_progress(what: str, seeds: range, *, rot: bool) -> Outcome:
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(what, total=len(seeds))
        workers = os.cpu_count() or 1
        return run_seeds(seeds, workers, lambda: progress.advance(task), rot=rot)


if __name__ == "__main__":
    main()
