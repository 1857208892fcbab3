"""Submit orders of a bank by several threads, the *tellers*. Touches the network and a database."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from examples.bank.accounts import Bank
from examples.bank.orders import Open, Tally, Transfer
from waltz.sync import SyncClient
from waltz.sync.callbacks import CallbackClient, TimedOut

OPENING_BALANCE = 1000
LARGEST_TRANSFER = 400
_OPEN_ORDERS_PER_TELLER = 4
"""How many orders of one teller, on average, may wait for their outcomes at a time."""


class Office:
    """Submits orders to every branch. The end of its context closes ``log``, too.

    ``tellers`` is the number of threads. Each teller waits ``pause`` seconds before an order.
    """

    def __init__(
        self, bank: Bank, log: SyncClient[bytes], *, tellers: int = 4, pause: float = 0.0
    ) -> None:
        self.bank = bank
        self.tally = Tally()
        self._tellers = tellers
        self._pause = pause
        open_orders = _OPEN_ORDERS_PER_TELLER * tellers
        self._client = CallbackClient(log, bank, max_in_flight=open_orders, retry_threads=2)
        self._branches = log.num_partitions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def open_accounts(self, accounts: int) -> None:
        """Open the accounts 1 to ``accounts`` in each branch, except those that exist."""
        for branch in range(self._branches):
            for number in range(1, accounts + 1):
                self._client.submit(Open(self.bank, self.tally, branch, number, OPENING_BALANCE))
        self._client.flush()

    def work(self, accounts: int, transfers: int, seed: int = 0) -> None:
        """Submit a number of random transfers between the accounts, and wait for their end."""
        # How many transfers each teller still has to submit, by the teller's number.
        remaining = [transfers // self._tellers] * self._tellers
        remaining[0] += transfers % self._tellers

        def take_one(teller: int) -> bool:
            remaining[teller] -= 1
            return remaining[teller] >= 0

        self._run_tellers(accounts, seed, take_one)

    def work_until(self, accounts: int, stop: threading.Event, seed: int = 0) -> None:
        """Submit random transfers until ``stop`` is set, and wait for their end."""
        self._run_tellers(accounts, seed, lambda _: not stop.is_set())

    def catch_up(self, seconds: float = 60.0) -> None:
        """Return when all transactions that are in the log now are applied. Raises TimedOut."""
        for branch in range(self._branches):
            end = self._client.log.high_water_mark(branch, timeout=seconds)
            self._client.wait_applied(branch, end, seconds)

    def _run_tellers(self, accounts: int, seed: int, may_continue: Callable[[int], bool]) -> None:
        """Run all tellers, and wait for the end of their transfers.

        Each teller submits transfers while ``may_continue`` returns True for its number.
        """
        with ThreadPoolExecutor(self._tellers, "teller") as pool:
            tellers = [
                pool.submit(
                    self._run_teller,
                    accounts,
                    random.Random(f"{seed}/{number}"),
                    may_continue,
                    number,
                )
                for number in range(self._tellers)
            ]
            for teller in tellers:
                teller.result()
        self._client.flush()

    def _run_teller(
        self,
        accounts: int,
        randomness: random.Random,
        may_continue: Callable[[int], bool],
        number: int,
    ) -> None:
        """Submit random transfers, as the teller ``number``, while ``may_continue(number)``."""
        while may_continue(number):
            time.sleep(self._pause)
            branch = randomness.randrange(self._branches)
            source, target = randomness.sample(range(1, accounts + 1), 2)
            amount = randomness.randint(1, LARGEST_TRANSFER)
            try:
                self._client.submit(Transfer(self.bank, self.tally, branch, source, target, amount))
            except TimedOut:
                # Too many orders are open, so this order was not sent. The open orders continue.
                self.tally.count(refused=1)
