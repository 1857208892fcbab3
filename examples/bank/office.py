"""An office: balances, a client, and tellers that submit orders. Threads, network, SQL."""

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


class Office:
    """Submits orders to every branch. It must be closed, and then closes ``log``.

    Each teller waits ``pause`` seconds before an order.
    """

    def __init__(
        self, bank: Bank, log: SyncClient[bytes], *, tellers: int = 4, pause: float = 0.0
    ) -> None:
        self.bank = bank
        self.tally = Tally()
        self._tellers = tellers
        self._pause = pause
        self._client = CallbackClient(log, bank, max_in_flight=4 * tellers, retry_threads=2)
        self._branches = log.num_partitions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def open_accounts(self, accounts: int) -> None:
        """Open accounts in each branch unless they exist; they are numbered from 1."""
        for branch in range(self._branches):
            for number in range(1, accounts + 1):
                self._client.submit(Open(self.bank, self.tally, branch, number, OPENING_BALANCE))
        self._client.flush()

    def work(self, accounts: int, transfers: int, seed: int = 0) -> None:
        """Submit this number of transfers between the accounts, and wait until they have ended."""
        shares = [transfers // self._tellers] * self._tellers
        shares[0] += transfers % self._tellers
        counted = [iter(range(share)) for share in shares]
        self._all(accounts, seed, lambda teller: next(counted[teller], None) is not None)

    def work_until(self, accounts: int, stop: threading.Event, seed: int = 0) -> None:
        """Submit transfers until ``stop`` is set, and wait until they have ended."""
        self._all(accounts, seed, lambda _: not stop.is_set())

    def catch_up(self, seconds: float = 60.0) -> None:
        """Return when everything that is in the log now has been applied. Raises TimedOut."""
        for branch in range(self._branches):
            end = self._client.log.high_water_mark(branch, timeout=seconds)
            self._client.wait_applied(branch, end, seconds)

    def _all(self, accounts: int, seed: int, again: Callable[[int], bool]) -> None:
        with ThreadPoolExecutor(self._tellers, "teller") as pool:
            tellers = [
                pool.submit(
                    self._teller, accounts, random.Random(f"{seed}/{number}"), again, number
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
        again: Callable[[int], bool],
        number: int,
    ) -> None:
        while again(number):
            time.sleep(self._pause)
            branch = chance.randrange(self._branches)
            source, target = chance.sample(range(1, accounts + 1), 2)
            amount = chance.randint(1, LARGEST_TRANSFER)
            try:
                self._client.submit(Transfer(self.bank, self.tally, branch, source, target, amount))
            except TimedOut:
                # Too many orders are open. They continue; this one was not sent.
                self.tally.count(refused=1)
