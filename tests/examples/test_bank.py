"""The bank on a cluster in one process with every database: the sum of all balances stays right."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, insert, update
from sqlalchemy.orm import Session

from examples.bank.__main__ import main
from examples.bank.accounts import Account, Bank
from examples.bank.audit import WrongBalances, audit
from examples.bank.office import OPENING_BALANCE, Office
from tests.support.postgres import emptied, running_postgres
from waltz import sync as blocking
from waltz.testing import Faults, SyncCluster

ACCOUNTS = 4
FAULTS = Faults(delay_seconds=(0, 0.001), lost=0.1, uncertain=0.02, conflict=0.05)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'bank.db'}"
        return
    yield from emptied(request.getfixturevalue("postgres"))


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database)
    yield engine
    engine.dispose()


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(partitions=2, seed=11) as cluster:
        yield cluster


def test_offices_with_separate_databases_agree(
    engine: Engine, cluster: SyncCluster, tmp_path: Path
) -> None:
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    banks = [Bank(engine), Bank(other)]
    offices = [Office(bank, blocking.opened(cluster.connect()), tellers=2) for bank in banks]
    with offices[0] as one, offices[1] as two, blocking.opened(cluster.connect()) as log:
        one.open_accounts(ACCOUNTS)
        two.catch_up()
        cluster.faults = FAULTS
        working = threading.Thread(target=two.work, args=(ACCOUNTS, 40, 2))
        working.start()
        one.work(ACCOUNTS, 40, 1)
        working.join()
        for office in offices:
            office.catch_up()
        assert banks[0].balances() == banks[1].balances()
        assert audit(log, banks[0]) == 2 * ACCOUNTS * OPENING_BALANCE
    done = one.tally.done + two.tally.done
    assert done > 40
    other.dispose()


def test_bank_office_resumes_at_its_mark_after_restart(
    engine: Engine, cluster: SyncCluster
) -> None:
    bank = Bank(engine)
    for seed in range(3):
        with Office(bank, blocking.opened(cluster.connect()), tellers=2) as office:
            office.open_accounts(ACCOUNTS)
            office.work(ACCOUNTS, 15, seed)
        # Closed without catching up: what others append meanwhile is for the next one.
    with (
        Office(bank, blocking.opened(cluster.connect())) as office,
        blocking.opened(cluster.connect()) as log,
    ):
        office.catch_up()
        assert audit(log, bank) == 2 * ACCOUNTS * OPENING_BALANCE


def test_audit_finds_a_wrong_balance(cluster: SyncCluster, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    bank = Bank(engine)
    with (
        Office(bank, blocking.opened(cluster.connect())) as office,
        blocking.opened(cluster.connect()) as log,
    ):
        office.open_accounts(2)
        with Session(engine) as session, session.begin():
            session.execute(update(Account).where(Account.number == 2).values(balance=7))
        with pytest.raises(WrongBalances, match=r"\(0, 2\), \(1, 2\)"):
            audit(log, bank)
        with Session(engine) as session, session.begin():
            session.execute(update(Account).values(balance=OPENING_BALANCE))
            session.execute(insert(Account).values(branch=9, number=9, balance=1))
        with pytest.raises(WrongBalances, match=r"\(9, 9\)"):
            audit(log, bank)
    engine.dispose()


def test_bank_program_in_process_prints_its_audit(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--in-process", "--transfers", "20", "--accounts", "3", "--tellers", "2"])
    assert "which is the amount paid in" in capsys.readouterr().out


def test_bank_program_pauses_before_each_order() -> None:
    begun = time.monotonic()
    main(
        ["--in-process", "--transfers", "3", "--accounts", "2", "--tellers", "1", "--pause", "1.0"]
    )
    assert time.monotonic() - begun >= 3.0
