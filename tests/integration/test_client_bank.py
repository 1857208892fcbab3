"""The bank while every process is killed in turn: the sum of all balances stays right.

One office is a process with an SQLite database, and is killed as well. The other is in this process
and keeps its balances in PostgreSQL, or in SQLite if that is not installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from examples.bank.accounts import Bank
from examples.bank.audit import audit
from examples.bank.office import OPENING_BALANCE, Office
from tests.support.load import client_of
from tests.support.postgres import programs, running_postgres
from waltz import sync as blocking
from waltz.local import LocalCluster, Shape
from waltz.sync import SyncClient

ACCOUNTS = 6
BRANCHES = 2
GOES_ON_WITHIN_S = 60.0
SOME = 5
PAUSE_S = 0.02


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    shape = Shape(partitions=BRANCHES, storages=3, servers=2)
    async with LocalCluster(tmp_path / "cluster", shape, session_timeout_ms=4000) as cluster:
        yield cluster


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if programs() is None:
            yield f"sqlite:///{tmp_path / 'here.db'}"
        else:
            yield stack.enter_context(running_postgres())


def log_of(cluster: LocalCluster) -> SyncClient[bytes]:
    return blocking.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls)


class OtherOffice:
    """An office in a separate process."""

    def __init__(self, cluster: LocalCluster, database: str, log: Path) -> None:
        self._said = log.open("w")
        options = {
            "zookeeper": cluster.zookeeper,
            "database": database,
            "accounts": str(ACCOUNTS),
            "transfers": "1000000",
            "tellers": "2",
            "pause": str(PAUSE_S),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.bank", *words],
            cwd=Path(__file__).parents[2],
            stdout=self._said,
            stderr=subprocess.STDOUT,
        )

    def kill(self) -> None:
        assert self._process.poll() is None, Path(self._said.name).read_text()
        self._process.kill()
        self._process.wait()
        self._said.close()


async def await_bookings(cluster: LocalCluster) -> None:
    """Return when both branches have more bookings."""
    async with asyncio.timeout(GOES_ON_WITHIN_S), client_of(cluster) as client:
        begun = [await client.high_water_mark(branch) for branch in range(BRANCHES)]
        for branch, mark in enumerate(begun):
            async for _ in client.stream(branch, after=mark, until=mark + SOME):
                pass


@pytest.mark.timeout(900)
@pytest.mark.slow
async def test_bank_total_is_right_after_every_process_was_killed(
    running: LocalCluster, database: str, tmp_path: Path
) -> None:
    elsewhere, log_file = f"sqlite:///{tmp_path / 'elsewhere.db'}", tmp_path / "office.log"
    engine = create_engine(database)
    bank, stop = Bank(engine), threading.Event()
    here = await asyncio.to_thread(lambda: Office(bank, log_of(running), tellers=2, pause=PAUSE_S))
    await asyncio.to_thread(here.open_accounts, ACCOUNTS)
    working = asyncio.create_task(asyncio.to_thread(here.work_until, ACCOUNTS, stop))
    other = OtherOffice(running, elsewhere, log_file)
    try:
        await await_bookings(running)
        for victim in running.plan.names:
            running.kill(victim)
            if victim != "zookeeper":
                await await_bookings(running)
            await running.start_one(victim)
            other.kill()
            other = OtherOffice(running, elsewhere, log_file)
        await await_bookings(running)
    finally:
        stop.set()
        other.kill()
    await asyncio.wait_for(working, GOES_ON_WITHIN_S)
    await asyncio.to_thread(audit_all, running, here, elsewhere)
    engine.dispose()


def audit_all(cluster: LocalCluster, here: Office, elsewhere: str) -> None:
    """Audit both offices; the killed one continues at the mark of its database."""
    engine = create_engine(elsewhere)
    paid_in = BRANCHES * ACCOUNTS * OPENING_BALANCE
    with here, Office(Bank(engine), log_of(cluster)) as other, log_of(cluster) as log:
        for office in (here, other):
            office.catch_up()
            assert audit(log, office.bank) == paid_in
        assert here.bank.balances() == other.bank.balances()
        assert here.tally.done > SOME
        assert here.tally.unknown == 0
    engine.dispose()
