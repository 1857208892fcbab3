"""Where the vectors of Waltz 0.13.2 are: files recorded from the reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "spec" / "vectors"


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder named by WALTZ_VECTORS; without it these tests are skipped."""
    folder = Path(os.environ.get("WALTZ_VECTORS") or _BESIDE_THE_REPOSITORY)
    if not folder.is_dir():
        pytest.skip(f"no vectors: {folder} does not exist (set WALTZ_VECTORS)")
    return folder
