"""Search the model of the recovery rule: ``python -m tests.model``, or ``make model``.

Exits with 1 if an invariant is broken, and prints the shortest trace to it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.model.configurations import Configuration, full, quick
from tests.model.search import Found, search

_MOST_STATES = 8_000_000
"""A search with more states than this needs too much memory, and fails."""


def explore(configuration: Configuration) -> tuple[Found, float]:
    began = time.monotonic()
    found = search(configuration.bounds, _MOST_STATES)
    return found, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the configurations of make test")
    parser.add_argument("--records", type=int, default=2, help="the longest log (default 2)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = quick() if options.quick else full(options.records)
    failures = 0
    with ProcessPoolExecutor(options.processes) as pool:
        running = {pool.submit(explore, one): one for one in chosen}
        for done in as_completed(running):
            found, seconds = done.result()
            print(f"{running[done].name}: {_summary(found)} in {seconds:.0f} s", flush=True)
            failures += found.broken is not None or not found.complete
    print("the rule holds in every state" if not failures else f"{failures} searches failed")
    return 1 if failures else 0


def _summary(found: Found) -> str:
    counts = f"{found.states:,} states, {found.transitions:,} transitions"
    if found.broken is not None:
        return "\n  ".join((f"BROKEN: {found.broken} ({counts})", *found.trace, ""))
    return counts if found.complete else f"NOT COMPLETE after {counts}"


if __name__ == "__main__":
    sys.exit(main())
