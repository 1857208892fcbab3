"""The balances, as a table that follows from the log. SQL database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, CheckConstraint, Engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import waltz
from waltz.state import StateStore

BOOKING = 0xB0
"""The header of the bank's transactions; a log may hold others."""

MINT = 0
"""Not an account: what is booked from here is new."""


@dataclass(frozen=True)
class Booking:
    """So much goes from one account of a branch to another."""

    source: int
    target: int
    amount: int


BOOKINGS = waltz.DataclassSerializer(Booking)


class Base(DeclarativeBase):
    """The bank's tables."""


class Account(Base):
    """One account. The database itself sees to it that it is not overdrawn."""

    __tablename__ = "bank_accounts"
    __table_args__ = (CheckConstraint("balance >= 0", name="bank_not_overdrawn"),)
    branch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    balance: Mapped[int] = mapped_column(BigInteger)


class Bank(StateStore[bytes]):
    """All balances, up to the marks that are kept with them."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, table="bank_marks")
        Base.metadata.create_all(engine)
        self.create_table()

    def apply(self, session: Session, transaction: waltz.Transaction[bytes]) -> None:
        """Book it."""
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
        """Return the present balance of an account, None if there is no such account."""
        with Session(self.engine) as session:
            account = session.get(Account, (branch, number))
            return None if account is None else account.balance

    def balances(self) -> dict[tuple[int, int], int]:
        """Return all balances by branch and number."""
        with Session(self.engine) as session:
            accounts = session.scalars(select(Account))
            return {(each.branch, each.number): each.balance for each in accounts}

    def total(self) -> int:
        """Return how much money there is."""
        with Session(self.engine) as session:
            return int(session.scalar(select(func.sum(Account.balance))) or 0)
