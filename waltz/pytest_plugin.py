"""The pytest plugin of Waltz: the fixture ``waltz_cluster``. The cluster runs in a thread.

pytest loads the plugin in every project whose environment has Waltz, also if the project does not
use it. So the plugin imports the cluster only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from waltz.testing.blocking import SyncCluster

_MARKER_SIGNATURE = (
    "waltz_cluster(partitions=1, *, servers=1, storages=3, seed=0, name='testing', faults=None)"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``waltz_cluster``: pytest warns of markers that are not registered."""
    description = f"{_MARKER_SIGNATURE}: the cluster of the fixture waltz_cluster"
    config.addinivalue_line("markers", description)


@pytest.fixture
def waltz_cluster(request: pytest.FixtureRequest) -> Iterator[SyncCluster]:
    """A new cluster in this process, for blocking tests and for coroutines.

    The marker ``waltz_cluster`` takes the arguments of `waltz.testing.SyncCluster`, and a test sets
    the shape of its cluster by them.
    """
    from waltz.testing.blocking import SyncCluster

    marker = request.node.get_closest_marker("waltz_cluster")
    args, kwargs = ((), {}) if marker is None else (marker.args, marker.kwargs)
    with SyncCluster(*args, **kwargs) as cluster:
        yield cluster
