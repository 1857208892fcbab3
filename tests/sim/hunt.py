"""Lives seeds until a promise is broken: `python -m tests.sim.hunt SEEDS SECONDS`.

Prints one line of JSON: how many lives it took, and the promise that the last one broke, and how
(null if none was broken).
"""

from __future__ import annotations

import json
import sys
import time

from tests.sim.life import live


def hunt(seeds: int, seconds: float) -> dict[str, object]:
    """Live the first ``seeds``, as many as begin within ``seconds``, until a promise is broken."""
    end = time.monotonic() + seconds
    lives = 0
    for seed in range(seeds):
        result = live(seed)
        lives += 1
        if result.promise is not None:
            return {"lives": lives, "promise": result.promise.name, "broken": result.broken}
        if time.monotonic() > end:
            break
    return {"lives": lives, "promise": None, "broken": None}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]), float(sys.argv[2]))))
