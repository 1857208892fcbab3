"""The log of a storage that cannot repair its damaged records: levels, and no repetitions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.unit.storage.test_storage_self_repair import MARK, new_model, observe
from waltz.net import PLAINTEXT
from waltz.testing import run
from waltz_storage.core.scrub.findings import IdRange
from waltz_storage.shell import self_repair
from waltz_storage.shell.peers import PeersUnknown
from waltz_storage.shell.self_repair import RepairTimes, SelfRepair


class Attempts:
    """A storage with the damaged records 3-4 of partition 0, whose replica has the mark ``mark``.

    Its attempts get the observations, or the errors, in ``found``; then the repair is cancelled.
    """

    def __init__(self, mark: int, found: list[Any]) -> None:
        self.findings = SimpleNamespace(ranges={0: (IdRange(3, 4),)})
        state = SimpleNamespace(partition=0, local_low_water_mark=mark)
        peers: Any = SimpleNamespace(
            tls=PLAINTEXT,
            network=None,
            observe=AsyncMock(side_effect=[*found, asyncio.CancelledError()]),
        )
        self.peers = peers
        scrubber: Any = SimpleNamespace(findings=self.findings)
        directory: Any = SimpleNamespace(states=lambda: [state])
        unused: Any = None
        self.repair = SelfRepair(scrubber, directory, unused, peers, RepairTimes())

    def levels(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        """Make the attempts by `RepairTimes`; return the levels of their lines."""
        caplog.set_level(logging.DEBUG, self_repair.__name__)
        self.repair.damage_found()
        with contextlib.suppress(asyncio.CancelledError):
            run(self.repair.run())
        assert all("records stay damaged" in text for text in caplog.messages)
        return [record.levelname for record in caplog.records]


def test_records_that_no_replica_has_undamaged_become_one_error_after_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = (observe(new_model(), a=(3, 4), b=(3, 4), c=(3, 4)), None)
    levels = Attempts(MARK, [nowhere] * 7).levels(caplog)
    # The attempts are made after 0, 1, 3, 7, 15, 31 and 63 minutes.
    assert levels == ["WARNING", "DEBUG", "DEBUG", "DEBUG", "ERROR", "DEBUG", "DEBUG"]


def test_records_above_the_mark_stay_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The next store session raises the mark, however late it begins: there is nothing to do."""
    levels = Attempts(2, [(observe(new_model(), a=(3, 4)), None)] * 7).levels(caplog)
    assert levels == ["WARNING", *["DEBUG"] * 6]


def test_obstacle_that_has_ended_meanwhile_begins_with_a_warning_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away, above = PeersUnknown("ZooKeeper: away"), (observe(new_model(), a=(3, 4)), None)
    levels = Attempts(2, [away, away, above, away, away, away]).levels(caplog)
    assert levels == ["WARNING", "DEBUG", "WARNING", "WARNING", "DEBUG", "ERROR"]


def test_damage_after_a_repair_by_an_administrator_begins_with_a_warning_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = PeersUnknown("ZooKeeper: away")
    attempts = Attempts(MARK, [away] * 6)

    async def damage_twice() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await attempts.repair.run()
        ranges, attempts.findings.ranges = attempts.findings.ranges, {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(7200):
                await attempts.repair.run()
        attempts.findings.ranges = ranges
        attempts.peers.observe.side_effect = [away]
        await attempts.repair._attempt()

    run(damage_twice())
    levels = [each.levelname for each in caplog.records if "stay damaged" in each.message]
    assert levels == ["WARNING", "ERROR", "WARNING"]
