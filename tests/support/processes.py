"""Tell how many processes a test may start to compute in parallel. Reads the environment."""

from __future__ import annotations

import os


def num_processes() -> int:
    """Return this test worker's share of the machine's cores, at least 1."""
    # pytest-xdist sets the variable in its workers, which run tests at the same time.
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)
