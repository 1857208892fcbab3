"""Plant bugs into the product and hunt each: `python -m tests.mutants [-j N] [WORD …]`.

With words, only those bugs are planted whose names or packages contain one of them. Exits with 1 if
a bug survives, if its text is no longer found in the product, or if a test or a seed that must find
bugs fails without any.

`--record` tries up to 1000 seeds, and writes for each bug the seed that has caught it and the time
of the hunt to `recorded.json`. The next hunt tries this seed first and fewer seeds after it, and
begins with the bugs that take longest. Record again when the simulator or the bugs have changed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutants.hunters import Hunt, Hunters
from tests.mutants.planted import PLANTED
from tests.mutants.recorded import Record, read_records, write_records

_TEXT_COLUMNS = 100


def main() -> int:
    """Hunt with a progress bar, print a summary; return 1 if a bug survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    # One more than cores: some hunts wait until the time limit of a test ends them.
    workers = (os.cpu_count() or 1) + 1
    parser.add_argument("-j", type=int, default=workers, metavar="N", dest="count")
    parser.add_argument("--record", action="store_true", help="write recorded.json")
    parser.add_argument("words", nargs="*", metavar="WORD")
    arguments = parser.parse_args()
    words = arguments.words
    signal.signal(signal.SIGTERM, _exit)
    bugs = [
        b for b in PLANTED if not words or any(w in f"{b.name} {b.package.value}" for w in words)
    ]
    begun, records = time.monotonic(), read_records()
    with Hunters(arguments.count, bugs, records, all_seeds=arguments.record) as hunters:
        hunts = _hunt_all(hunters, len(bugs), records if arguments.record else None)
        false_alarms = hunters.find_without_bug()
    print(summary(hunts, time.monotonic() - begun))
    bad = [done for done in hunts if done.caught is None]
    for text in (*map(problem, bad), *false_alarms):
        print(text, file=sys.stderr)
    return 1 if bad or false_alarms else 0


def _exit(number: int, frame: FrameType | None) -> None:
    """End this program so that the hunts end and their files are removed."""
    sys.exit(128 + number)


def _hunt_all(hunters: Hunters, count: int, records: dict[str, Record] | None) -> list[Hunt]:
    """Hunt ``count`` bugs, and print a row when a hunt ends; return the hunts.

    Each hunt that catches its bug is added to ``records``, which are written to their file, unless
    they are None. So an interrupted search need not be repeated from its beginning.
    """
    columns = (TextColumn("planted bugs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    planted, hunts = {bug.name for bug in PLANTED}, []
    with Progress(*columns) as progress:
        task = progress.add_task("planted bugs", total=count)
        for done in hunters.hunt_all():
            hunts.append(done)
            progress.console.print(row(done), markup=False, highlight=False, soft_wrap=True)
            progress.advance(task)
            if records is not None and done.caught is not None:
                records[done.planted.name] = record_of(done)
                write_records({n: r for n, r in records.items() if n in planted})
    return hunts


def record_of(done: Hunt) -> Record:
    """Return what the next hunt needs to know about a hunt that caught its bug."""
    assert done.caught is not None
    return Record(done.seconds, done.caught.seed)


def row(done: Hunt) -> str:
    """Return a line of the table."""
    if done.caught is None:
        how = "NOT HUNTED" if done.failed else "SURVIVED"
    else:
        how = f"{done.caught.by}  {done.caught.text}".replace("\n", " ")[:_TEXT_COLUMNS]
    return f"{done.seconds:6.1f} s  {done.planted.name:60} {how}".rstrip()


def summary(hunts: Sequence[Hunt], seconds: float) -> str:
    """Return how many bugs were caught, in which time, and which hunts took longest."""
    caught = sum(done.caught is not None for done in hunts)
    longest = sorted(hunts, key=lambda done: done.seconds, reverse=True)[:3]
    named = ", ".join(f"{done.planted.name} ({done.seconds:.0f} s)" for done in longest)
    return (
        f"{caught} of {len(hunts)} planted bugs were caught in {seconds:.0f} s; "
        f"the longest hunts: {named}"
    )


def problem(done: Hunt) -> str:
    """Return what to read about a bug that was not caught."""
    planted = done.planted
    what = f"{planted.name} ({planted.package.value}): {planted.breaks}"
    return f"not hunted: {what} {done.failed}" if done.failed else f"survived: {what}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
