"""A state store for tests, with one row per transaction. Touches the SQL database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, Integer, String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import waltz
from waltz.state import StateStore


class Base(DeclarativeBase):
    pass


class Line(Base):
    __tablename__ = "lines"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    text: Mapped[str] = mapped_column(String(100), unique=True)


class Lines(StateStore[bytes]):
    """Stores each transaction in a table, then calls ``then``."""

    def __init__(self, engine: Engine, then: Callable[[Session], object] = lambda _: None) -> None:
        super().__init__(engine, retry_seconds=5)
        self.then = then
        self.applied = 0

    def apply(self, session: Session, transaction: waltz.Transaction[bytes]) -> None:
        self.applied += 1
        session.add(Line(text=f"{transaction.partition}/{transaction.data.decode()}"))
        self.then(session)

    def lines(self) -> list[str]:
        with Session(self.engine) as session:
            return list(session.scalars(select(Line.text).order_by(Line.text)))


def transaction(
    number: int, data: bytes | None = None, partition: int = 0
) -> waltz.Transaction[bytes]:
    req_id = waltz.ReqId(1, 1, partition, number)
    return waltz.Transaction(partition, number, req_id, 0, data or b"%d" % number)
