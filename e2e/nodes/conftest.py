"""Load the images of these tests into the nodes."""

from __future__ import annotations

import pytest

from e2e import installing


@pytest.fixture(scope="session")
def images() -> None:
    """Load all images but that of Spark, which no test uses: it is the largest by far."""
    installing.load_images(without=("waltz-spark",))
