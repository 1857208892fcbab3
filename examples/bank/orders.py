"""Define the orders of a bank's customers. Each order decides by the balances in the database.

The transaction of an order takes the locks of its accounts. If another transaction has taken one of
these locks since the decision, the log refuses the transaction, and the order is decided again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import waltz
from examples.bank.accounts import BOOKING, BOOKINGS, MINT, Bank, Booking
from waltz.sync.callbacks import TransactionBuilder, TransactionContext


@dataclass
class Tally:
    """The number of orders by their outcome, counted on several threads."""

    done: int = 0
    refused: int = 0
    unknown: int = 0
    conflicts: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def count(
        self, *, done: int = 0, refused: int = 0, unknown: int = 0, conflicts: int = 0
    ) -> None:
        """Add to the counts."""
        with self._counting:
            self.done += done
            self.refused += refused
            self.unknown += unknown
            self.conflicts += conflicts


class Order(TransactionContext[bytes]):
    """An order in one branch; ``tally`` counts its outcome."""

    def __init__(self, bank: Bank, tally: Tally, branch: int) -> None:
        self._bank = bank
        self._tally = tally
        self._branch = branch

    def partition_id(self, num_partitions: int) -> int:
        """Return the partition of the branch."""
        return self._branch

    def execute(self, builder: TransactionBuilder[bytes]) -> bool:
        """Build the transaction of `booking`, with locks on its accounts.

        Returns False if the order is refused; then nothing is appended.
        """
        booking = self.booking()
        if booking is None:
            return False
        builder.header = BOOKING
        builder.data = BOOKINGS.serialize(booking)
        accounts = {booking.source, booking.target} - {MINT}
        builder.write_locks = [waltz.Lock("account", number) for number in sorted(accounts)]
        return True

    def booking(self) -> Booking | None:
        """Return the booking that the current balances allow, or None to refuse the order."""
        raise NotImplementedError

    def on_completion(self, result: bool) -> None:
        """Count an order as done if it is in the log, otherwise as refused."""
        self._tally.count(done=result, refused=not result)

    def on_lock_failure(self) -> None:
        """Count a conflict. The order is decided again afterwards."""
        self._tally.count(conflicts=1)

    def on_exception(self, error: Exception) -> None:
        """Count an order in doubt, which may be in the log. The balances show whether it is."""
        self._tally.count(unknown=1)


class Open(Order):
    """Opens an account with a first amount."""

    def __init__(self, bank: Bank, tally: Tally, branch: int, number: int, amount: int) -> None:
        super().__init__(bank, tally, branch)
        self._number = number
        self._amount = amount

    def booking(self) -> Booking | None:
        """Return the booking of the first amount; refuse the order if the account exists."""
        if self._bank.balance(self._branch, self._number) is not None:
            return None
        return Booking(MINT, self._number, self._amount)


class Transfer(Order):
    """Transfers money between two accounts of a branch."""

    def __init__(
        self, bank: Bank, tally: Tally, branch: int, source: int, target: int, amount: int
    ) -> None:
        super().__init__(bank, tally, branch)
        self._booking = Booking(source, target, amount)

    def booking(self) -> Booking | None:
        """Return the booking; refuse a transfer that would overdraw the account.

        A transfer from or to an unknown account is refused, too.
        """
        source = self._bank.balance(self._branch, self._booking.source)
        target = self._bank.balance(self._branch, self._booking.target)
        if source is None or target is None or source < self._booking.amount:
            return None
        return self._booking
