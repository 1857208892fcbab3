"""Lives seeds until a promise is broken: `python -m tests.sim.hunt SEEDS`.

Prints one line of JSON: how many lives it took, and the promise that the last one broke, and how
(null if none was broken).
"""

from __future__ import annotations

import json
import sys

from tests.sim.life import live


def hunt(seeds: int) -> dict[str, object]:
    """Live the first ``seeds`` until a promise is broken."""
    for seed in range(seeds):
        result = live(seed)
        if result.promise is not None:
            return {"lives": seed + 1, "promise": result.promise.name, "broken": result.broken}
    return {"lives": seeds, "promise": None, "broken": None}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]))))
