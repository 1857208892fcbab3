"""Plant bugs into the product and hunt each: `python -m tests.mutants [-j N] [WORD …]`.

With words, only those bugs are planted whose names or packages contain one of them. Exits with 1 if
a bug survives, if its text is no longer found in the product, or if one of the tests that must find
bugs fails without any.
"""

from __future__ import annotations

import argparse
import os
import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutants.hunters import Hunt, Hunters
from tests.mutants.planted import PLANTED
from tests.mutants.planting import Nodes

_TEXT_COLUMNS = 100


def main() -> int:
    """Hunt with a progress bar, print a table; return 1 if a bug survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1, metavar="N", dest="count")
    parser.add_argument("words", nargs="*", metavar="WORD")
    arguments = parser.parse_args()
    words = arguments.words
    bugs = [
        b for b in PLANTED if not words or any(w in f"{b.name} {b.package.value}" for w in words)
    ]
    hunters = Hunters(arguments.count)
    columns = (TextColumn("planted bugs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hunts = []
    with Progress(*columns) as progress:
        task = progress.add_task("planted bugs", total=len(bugs))
        for done in hunters.hunt_all(bugs):
            hunts.append(done)
            progress.advance(task)
    for done in sorted(hunts, key=lambda each: bugs.index(each.planted)):
        print(row(done))
    named = {name for b in bugs if isinstance(b.caught_by, Nodes) for name in b.caught_by.names}
    problem = hunters.run_unchanged(sorted(named)) if named else ""
    bad = [done for done in hunts if done.caught is None]
    for done in bad:
        planted = done.planted
        what = f"{planted.name} ({planted.package.value}): {planted.breaks}"
        print(f"not hunted: {what} {done.failed}" if done.failed else f"survived: {what}")
    if problem:
        print(problem)
    print(f"{len(hunts) - len(bad)} of {len(bugs)} planted bugs were caught")
    return 1 if bad or problem else 0


def row(done: Hunt) -> str:
    """Return a line of the table."""
    if done.caught is None:
        how = "NOT HUNTED" if done.failed else "SURVIVED"
    else:
        how = f"{done.caught.by}  {done.caught.text}".replace("\n", " ")[:_TEXT_COLUMNS]
    return f"{done.seconds:6.1f} s  {done.planted.name:60} {how}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
