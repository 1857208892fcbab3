"""Keep the balances in a table that follows from the log. Touches a SQL database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, CheckConstraint, Engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import waltz
from waltz.state import StateStore

BOOKING = 0xB0
"""The header of the bank's transactions; the log may contain transactions of other programs."""

MINT = 0
"""The source of a booking that creates money. No account has this number."""


@dataclass(frozen=True)
class Booking:
    """A transfer of an amount between two accounts of a branch."""

    source: int
    target: int
    amount: int


BOOKINGS = waltz.DataclassSerializer(Booking)


class Base(DeclarativeBase):
    """The base class of the bank's tables."""


class Account(Base):
    """One account. A constraint of the database prevents a negative balance."""

    __tablename__ = "bank_accounts"
    __table_args__ = (CheckConstraint("balance >= 0", name="bank_not_overdrawn"),)
    branch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    balance: Mapped[int] = mapped_column(BigInteger)


class Bank(StateStore[bytes]):
    """All balances, and for each branch the mark: the last transaction that the balances reflect.

    ``table`` of the `StateStore` is the table of the marks.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, table="bank_marks")
        Base.metadata.create_all(engine)
        self.create_table()

    def apply(self, session: Session, transaction: waltz.Transaction[bytes]) -> None:
        """Apply one transaction; a transaction that is not a booking changes nothing."""
        if transaction.header != BOOKING:
            return
        branch, booking = transaction.partition, BOOKINGS.deserialize(transaction.data)
        if booking.source == MINT:
            account = Account(branch=branch, number=booking.target, balance=booking.amount)
            session.add(account)
            return
        session.get_one(Account, (branch, booking.source)).balance -= booking.amount
        session.get_one(Account, (branch, booking.target)).balance += booking.amount

    def balance(self, branch: int, number: int) -> int | None:
        """Return the balance of an account, None if the account does not exist."""
        with Session(self.engine) as session:
            account = session.get(Account, (branch, number))
            return None if account is None else account.balance

    def balances(self) -> dict[tuple[int, int], int]:
        """Return all balances by branch and account number."""
        with Session(self.engine) as session:
            accounts = session.scalars(select(Account))
            return {(each.branch, each.number): each.balance for each in accounts}

    def total(self) -> int:
        """Return the sum of all balances."""
        with Session(self.engine) as session:
            return int(session.scalar(select(func.sum(Account.balance))) or 0)
