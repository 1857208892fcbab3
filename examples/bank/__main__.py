"""Run a bank on a cluster or a mock cluster, with any database, then verify its balances."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import create_engine

import waltz
from examples.bank.accounts import Bank
from examples.bank.audit import audit
from examples.bank.office import Office
from waltz import mock, sync
from waltz.sync import SyncClient


def main(arguments: list[str] | None = None) -> None:
    """Run the program; ``arguments`` default to those of the command line."""
    given = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        database = given.database or f"sqlite:///{Path(directory) / 'bank.db'}"
        engine = create_engine(database)
        try:
            open_log = _opener(given.zookeeper, given.root, tls=given.tls)
            with (
                Office(Bank(engine), open_log(), tellers=given.tellers) as office,
                open_log() as log,
            ):
                office.open_accounts(given.accounts)
                office.work(given.accounts, given.transfers, given.seed)
                office.catch_up()
                tally, money = office.tally, audit(log, office.bank)
        finally:
            engine.dispose()
    print(f"{tally.done} bookings, {tally.refused} refused, {tally.unknown} in doubt")
    print(f"{tally.conflicts} lock failures, after which the order was decided again")
    print(f"{money} in {given.accounts} accounts of each branch, which is the amount paid in")


def _opener(zookeeper: str | None, root: str, *, tls: bool) -> Callable[[], SyncClient[bytes]]:
    if zookeeper is None:
        faults = mock.Faults(delay_seconds=(0, 0.002), lost=0.1, uncertain=0.02, conflict=0.1)
        cluster = mock.MockCluster(partitions=3, faults=faults)
        return lambda: sync.opened(cluster.connect())
    how = waltz.TlsConfig() if tls else waltz.PLAINTEXT
    return lambda: sync.connect(zookeeper, root=root, tls=how)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.bank", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--zookeeper", metavar="HOST:PORT", help="the ZooKeeper of a running cluster"
    )
    where.add_argument("--mock", action="store_true", help="use a mock cluster with faults")
    parser.add_argument("--root", default="/waltz", help="the cluster's root znode (%(default)s)")
    parser.add_argument("--tls", action="store_true", help="connect by TLS")
    parser.add_argument(
        "--database", metavar="URL", help="the database (a temporary SQLite database)"
    )
    for name, default, meaning in (
        ("accounts", 8, "the number of accounts of each branch"),
        ("transfers", 200, "the number of transfers"),
        ("tellers", 4, "the number of threads"),
        ("seed", 0, "the seed of the random transfers"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each order (0)")
    return parser


if __name__ == "__main__":
    main()
