"""Keep a state in a database that follows the log: data and mark change in one SQL transaction.

The mark is the id of the last transaction that the state contains. Stop or kill this program, or,
once its first run has created the tables, run it several times at once: the counts always agree
with the log. The program needs waltz-log[sql], and for a database other than SQLite the driver of
that database.

    python examples/06_state_store.py HOST:PORT sqlite:///counts.db
"""

import sys

from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import waltz
from waltz.state import StateStore
from waltz.sync import callbacks


class Base(DeclarativeBase):
    """The base class of the tables."""


class Count(Base):
    """The number of transactions that were seen in one partition."""

    __tablename__ = "counts"
    name: Mapped[str] = mapped_column(String(50), primary_key=True)
    seen: Mapped[int]


class Counts(StateStore[bytes]):
    """Counts the transactions of each partition."""

    def apply(self, session: Session, transaction: waltz.Transaction[bytes]) -> None:
        """Count one transaction. The store commits this change and the mark together."""
        name = f"partition {transaction.partition}"
        count = session.get(Count, name) or Count(name=name, seen=0)
        count.seen += 1
        session.add(count)


class Add(callbacks.TransactionContext[bytes]):
    """Appends one transaction, to partition 0: the default of `partition_id`."""

    def execute(self, builder: callbacks.TransactionBuilder[bytes]) -> bool:
        """Build the transaction."""
        builder.data = b"counted"
        return True


def main(zookeeper: str, database: str) -> None:
    """Append one transaction and print all counts."""
    engine = create_engine(database)
    Base.metadata.create_all(engine)
    store = Counts(engine)
    store.create_table()
    with callbacks.connect(store, zookeeper, root="/waltz", tls=waltz.PLAINTEXT) as client:
        client.submit(Add())
        client.flush()
    with Session(engine) as session:
        for count in session.scalars(select(Count).order_by(Count.name)):
            print(f"{count.name}: {count.seen}")
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
