"""The pytest plugin of Waltz: the fixture ``waltz_cluster``. Touches threads.

Every pytest of an environment loads the plugin, so the plugin imports the cluster only when a test
uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from waltz.testing.blocking import SyncCluster

_MARKER = (
    "waltz_cluster(partitions=1, *, servers=1, storages=3, seed=0, name='testing', faults=None)"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{_MARKER}: the cluster of the fixture waltz_cluster")


@pytest.fixture
def waltz_cluster(request: pytest.FixtureRequest) -> Iterator[SyncCluster]:
    """A new cluster in this process, for blocking tests and for coroutines.

    The marker ``waltz_cluster`` has the arguments of `waltz.testing.SyncCluster`.
    """
    from waltz.testing.blocking import SyncCluster

    marker = request.node.get_closest_marker("waltz_cluster")
    args, kwargs = ((), {}) if marker is None else (marker.args, marker.kwargs)
    with SyncCluster(*args, **kwargs) as cluster:
        yield cluster
