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
        most = _OPEN_ORDERS_PER_TELLER * tellers
        self._client = CallbackClient(log, bank, max_in_flight=most, retry_threads=2)
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

    def _run_tellers(self, accounts: int, seed: int, goes_on: Callable[[int], bool]) -> None:
        """Run all tellers; each one submits transfers while ``goes_on(its number)`` is true."""
        with ThreadPoolExecutor(self._tellers, "teller") as pool:
            tellers = [
                pool.submit(
                    self._teller, accounts, random.Random(f"{seed}/{number}"), goes_on, number
                )
                for number in range(self._tellers)
            ]
            for teller in tellers:
                teller.result()
        self._client.flush()

    def _teller(
        self,
        accounts: int,
        chance: random.Random,
        goes_on: Callable[[int], bool],
        number: int,
    ) -> None:
        """Submit random transfers, as the teller ``number``, while ``goes_on(number)`` is true."""
        while goes_on(number):
            time.sleep(self._pause)
            branch = chance.randrange(self._branches)
            source, target = chance.sample(range(1, accounts + 1), 2)
            amount = chance.randint(1, LARGEST_TRANSFER)
            try:
                self._client.submit(Transfer(self.bank, self.tally, branch, source, target, amount))
            except TimedOut:
                # Too many orders are open, so this order was not sent. The open orders continue.
                self.tally.count(refused=1)
