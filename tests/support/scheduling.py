"""Give whole groups of tests to the workers of pytest-xdist. Touches nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Runs the tests of one group one after the other, on one worker.

    ``group`` returns the group of a test, whose node id it gets. pytest-xdist 3.8 has such a
    scheduler. It groups by node ids that it changes, and cannot change those of pytest 9.2.
    """

    def __init__(self, config: pytest.Config, log: Producer, group: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._group = group

    def _split_scope(self, nodeid: str) -> str:
        return self._group(nodeid)
