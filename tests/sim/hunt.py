"""Runs seeds until a guarantee is violated: `python -m tests.sim.hunt SEEDS`.

Prints one line of JSON: the number of runs, the guarantee that the last run violated, and how (null
if none was violated).
"""

from __future__ import annotations

import json
import sys

from tests.sim.cluster_run import run_seed


def hunt(seeds: int) -> dict[str, object]:
    """Run the first ``seeds`` until a guarantee is violated."""
    for seed in range(seeds):
        result = run_seed(seed)
        if result.guarantee is not None:
            return {"runs": seed + 1, "guarantee": result.guarantee.name, "broken": result.broken}
    return {"runs": seeds, "guarantee": None, "broken": None}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]))))
