"""Keep the state of an application in an SQL database, together with its marks.

The *mark* of a partition is the id of the last transaction that the state contains.

* `store`: `StateStore`, the base class of an application with callbacks (`waltz.sync`)
* `marks`: the table of marks and its SQL statements
* `session`: the database session that an application gets; it cannot commit
* `core`: which database errors are transient, and the errors of a state store

This package needs the extra ``waltz-log[sql]``, and a driver for the database:

    class Balances(StateStore[Transfer]):
        def apply(self, session: Session, transaction: waltz.Transaction[Transfer]) -> None:
            transfer = transaction.data
            session.execute(update(accounts).where(...))

    store = Balances(create_engine("postgresql+psycopg://..."))
    store.create_table()
    with callbacks.connect(store, "127.0.0.1:2181", root="/waltz", serializer=...) as client:
        ...

State and mark change in one SQL transaction. So the state is always the result of the log up to the
mark, even if a process is killed at any time. Several processes may use the same database: each
transaction is applied by exactly one of them.
"""

from waltz.runtime.extras import needs_extra

with needs_extra("waltz.state", "sql"):
    from waltz.state.core.errors import MarkMismatch, NotYourTransaction, RowCountUnknown
    from waltz.state.store import StateStore

__all__ = ["MarkMismatch", "NotYourTransaction", "RowCountUnknown", "StateStore"]
