"""Verifies a bank against the log. Network, SQL database."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sqlalchemy import create_engine

from examples.bank.accounts import BOOKING, BOOKINGS, MINT, Bank
from waltz.sync import SyncClient


class Wrong(Exception):
    """The balances are wrong."""


def audit(log: SyncClient[bytes], bank: Bank) -> int:
    """Compare the balances with the whole log; return the sum of all balances.

    Raises Wrong.
    """
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(f"sqlite:///{Path(directory) / 'audit.db'}")
        try:
            again = Bank(engine)
            minted = _rebuild(log, again)
            balances, rebuilt = bank.balances(), again.balances()
        finally:
            engine.dispose()
    if balances != rebuilt:
        different = [
            key for key in sorted(balances | rebuilt) if balances.get(key) != rebuilt.get(key)
        ]
        raise Wrong(f"the balances of (branch, number) {different} are not those of the log")
    if sum(balances.values()) != minted:
        raise Wrong(f"there are {sum(balances.values())}, but {minted} were paid in")
    return minted


def _rebuild(log: SyncClient[bytes], bank: Bank) -> int:
    """Apply the whole log to an empty bank and return how much was paid in."""
    minted = 0
    for branch in range(log.num_partitions):
        bank.get_client_high_water_mark(branch)
        for transaction in log.stream(branch, until=log.high_water_mark(branch), data=True):
            bank.apply_transaction(transaction)
            if transaction.header == BOOKING:
                booking = BOOKINGS.deserialize(transaction.data)
                minted += booking.amount if booking.source == MINT else 0
    return minted
