"""Find the folders of vectors: this project's, and those recorded from Waltz 0.13.2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

OWN = Path(__file__).parents[2] / "spec" / "vectors"

_RECORDED = os.environ.get("WALTZ_VECTORS")
assert _RECORDED or os.environ.get("WALTZ_CI") != "1", (
    "WALTZ_CI is 1, so the recorded vectors must be tested: WALTZ_VECTORS must name their folder"
)
FOLDERS = {"own": OWN} | ({"recorded": Path(_RECORDED)} if _RECORDED else {})
"""By name; WALTZ_VECTORS names the folder of recorded vectors."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for each folder. A test with a case number has its own parameters."""
    if "vectors" in metafunc.fixturenames and "case_number" not in metafunc.fixturenames:
        metafunc.parametrize("vectors", list(FOLDERS), indirect=True, scope="session")


@pytest.fixture(scope="session")
def vectors(request: pytest.FixtureRequest) -> Path:
    """The folder of one set of vectors."""
    folder = FOLDERS[request.param]
    assert folder.is_dir(), f"WALTZ_VECTORS: {folder} is no folder"
    return folder


@pytest.fixture(scope="session")
def own(vectors: Path) -> bool:
    """Whether this project's encoders wrote the vectors."""
    return vectors == OWN
