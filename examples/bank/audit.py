"""Verify a bank's balances against the log. Touches the network and a SQL database."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sqlalchemy import create_engine

from examples.bank.accounts import BOOKING, BOOKINGS, MINT, Bank
from waltz.sync import SyncClient


class WrongBalances(Exception):
    """The balances do not agree with the log."""


def audit(log: SyncClient[bytes], bank: Bank) -> int:
    """Compare the balances with the whole log; return the sum of all balances.

    Raises WrongBalances.
    """
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(f"sqlite:///{Path(directory) / 'audit.db'}")
        try:
            rebuilt_bank = Bank(engine)
            paid_in = _rebuild(log, rebuilt_bank)
            balances, rebuilt = bank.balances(), rebuilt_bank.balances()
        finally:
            engine.dispose()
    if balances != rebuilt:
        different = [
            key for key in sorted(balances | rebuilt) if balances.get(key) != rebuilt.get(key)
        ]
        raise WrongBalances(
            f"the balances of the accounts (branch, number) {different} differ from the log"
        )
    if sum(balances.values()) != paid_in:
        raise WrongBalances(
            f"the sum of all balances is {sum(balances.values())}, but {paid_in} were paid in"
        )
    return paid_in


def _rebuild(log: SyncClient[bytes], bank: Bank) -> int:
    """Apply the whole log to an empty bank; return the amount that was paid in."""
    paid_in = 0
    for branch in range(log.num_partitions):
        # This call inserts the mark -1, from which `apply_transaction` continues.
        bank.get_client_high_water_mark(branch)
        for transaction in log.stream(branch, until=log.high_water_mark(branch), data=True):
            bank.apply_transaction(transaction)
            if transaction.header == BOOKING:
                booking = BOOKINGS.deserialize(transaction.data)
                if booking.source == MINT:
                    paid_in += booking.amount
    return paid_in
