"""Run a bank on a cluster, or on one in this process, with any database; then verify it."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine

import waltz
from examples.bank.accounts import Bank
from examples.bank.audit import audit
from examples.bank.office import Office
from waltz import sync
from waltz.sync import SyncClient
from waltz.testing import Faults, SyncCluster


def main(arguments: list[str] | None = None) -> None:
    """Run the program; ``arguments`` default to those of the command line."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        database = options.database or f"sqlite:///{Path(directory) / 'bank.db'}"
        engine = create_engine(database)
        try:
            with (
                _opener(options.zookeeper, options.root, tls=options.tls) as open_log,
                Office(
                    Bank(engine), open_log(), tellers=options.tellers, pause=options.pause
                ) as office,
                open_log() as log,
            ):
                office.open_accounts(options.accounts)
                office.work(options.accounts, options.transfers, options.seed)
                office.catch_up()
                tally, money = office.tally, audit(log, office.bank)
        finally:
            engine.dispose()
    print(f"{tally.done} bookings, {tally.refused} refused, {tally.unknown} in doubt")
    print(f"{tally.conflicts} lock failures, after which the order was decided again")
    print(f"{money} in {options.accounts} accounts of each branch, which is the amount paid in")


@contextmanager
def _opener(
    zookeeper: str | None, root: str, *, tls: bool
) -> Iterator[Callable[[], SyncClient[bytes]]]:
    """Yield a function that connects to the log of a cluster.

    Without ``zookeeper``, the cluster runs in this process, with faults.
    """
    if zookeeper is not None:
        config = waltz.TlsConfig() if tls else waltz.PLAINTEXT
        yield lambda: sync.connect(zookeeper, root=root, tls=config)
        return
    faults = Faults(delay_seconds=(0, 0.002), lost=0.1, uncertain=0.02, conflict=0.1)
    with SyncCluster(partitions=3, faults=faults) as cluster:
        yield lambda: sync.opened(cluster.connect())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.bank", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--zookeeper", metavar="HOST:PORT", help="the ZooKeeper of a running cluster"
    )
    where.add_argument(
        "--in-process", action="store_true", help="use a cluster in this process, with faults"
    )
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
