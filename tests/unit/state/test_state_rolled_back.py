"""Test that a mark is never committed without its data, and two processes that start together.

The mark moves without data if the database has rolled back after an error that `apply` caught, or
if the driver counts wrong rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from tests.support.state_lines import Line, Lines, transaction
from waltz.state import MarkMismatch, NotYourTransaction
from waltz.state.core.errors import RowCountUnknown
from waltz.state.marks import Marks


def insert_again(session: Session) -> None:
    """Insert a row that exists, and catch the error. The database then rolls back everything."""
    postgres = session.get_bind().dialect.name == "postgresql"
    # PostgreSQL rolls back after every error, SQLite if the statement says so.
    statement = "INSERT" if postgres else "INSERT OR ROLLBACK"
    with contextlib.suppress(IntegrityError):
        session.execute(text(f"{statement} INTO lines (id, text) VALUES (7, '0/0')"))


def insert_again_and_another(session: Session) -> None:
    insert_again(session)
    session.execute(insert(Line).values(text="another"))


def insert_again_and_add_another(session: Session) -> None:
    insert_again(session)
    session.add(Line(text="another"))


@pytest.mark.parametrize(
    "then", [insert_again, insert_again_and_another, insert_again_and_add_another]
)
def test_transaction_that_the_database_rolled_back_is_not_applied(
    store: Lines, then: Callable[[Session], None]
) -> None:
    store.apply_transaction(transaction(0))
    store.then = then
    with pytest.raises(NotYourTransaction, match=r"outside of session.begin_nested\(\)"):
        store.apply_transaction(transaction(1))
    assert store.applied == 2
    assert store.get_client_high_water_mark(0) == 0
    assert store.lines() == ["0/0"]
    store.then = lambda _: None
    store.apply_transaction(transaction(1))
    assert store.lines() == ["0/0", "0/1"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_error_after_which_the_sql_transaction_continues_may_be_caught(store: Lines) -> None:
    """SQLite undoes only the statement that fails."""

    def insert_or_not(session: Session) -> None:
        with contextlib.suppress(IntegrityError):
            session.execute(insert(Line).values(text="0/0"))

    store.apply_transaction(transaction(0))
    store.then = insert_or_not
    store.apply_transaction(transaction(1))
    assert store.lines() == ["0/0", "0/1"]


def count_as(monkeypatch: pytest.MonkeyPatch, store: Lines, count: int) -> None:
    """Let the driver of ``store`` return ``count`` for each UPDATE."""

    def count_wrong(context: object) -> int:
        return count

    monkeypatch.setattr(store.engine.dialect.execution_ctx_cls, "rowcount", property(count_wrong))


def test_driver_without_row_counts_applies_nothing_and_is_named(
    store: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        count_as(patched, store, -1)
        with pytest.raises(RowCountUnknown, match="did not return how many rows"):
            store.apply_transaction(transaction(0))
    assert store.applied == 0
    assert store.get_client_high_water_mark(0) == -1
    store.apply_transaction(transaction(0))
    assert store.lines() == ["0/0"]


def test_mark_is_not_moved_if_the_driver_counts_no_row(
    store: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Marks.advance

    def advance_uncounted(
        marks: Marks, connection: Connection, partition: int, transaction_id: int
    ) -> bool:
        advance(marks, connection, partition, transaction_id)
        return False

    with monkeypatch.context() as patched:
        patched.setattr(Marks, "advance", advance_uncounted)
        with pytest.raises(MarkMismatch, match="the mark in the database is -1"):
            store.apply_transaction(transaction(0))
    assert store.applied == 0
    assert store.get_client_high_water_mark(0) == -1


def test_table_that_another_process_creates_meanwhile_is_used(
    engine: Engine, database: str
) -> None:
    """Two processes that start together both find no table; the second CREATE TABLE fails."""
    created: list[str] = []

    def create_first(connection: Connection, cursor: object, statement: str, *_: object) -> None:
        if "CREATE TABLE" in statement and not created:
            created.append(statement)
            other = create_engine(database)
            with other.begin() as first:
                first.execute(text(statement))
            other.dispose()

    event.listen(engine, "before_cursor_execute", create_first)
    store = Lines(engine)
    store.create_table()
    assert len(created) == 1
    assert store.get_client_high_water_mark(0) == -1


def test_table_that_cannot_be_created_raises_the_error(database: str) -> None:
    engine = create_engine(database)
    store = Lines(engine)
    attempts: list[str] = []

    def refuse(connection: Connection, cursor: object, statement: str, *_: object) -> None:
        if "CREATE TABLE" in statement:
            attempts.append(statement)
            connection.exec_driver_sql("SELECT * FROM nowhere")

    event.listen(engine, "before_cursor_execute", refuse)
    with pytest.raises(DBAPIError, match="nowhere"):
        store.create_table()
    assert len(attempts) == 2
    engine.dispose()
