"""Test that data and mark change together or not at all, after any error."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, func, insert, select, text
from sqlalchemy.exc import (
    IntegrityError,
    InterfaceError,
    InternalError,
    InvalidRequestError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.orm import Session

import waltz
from tests.support.state_lines import Base, Line, Lines, transaction
from waltz.state import MarkMismatch, NotYourTransaction, StateStore
from waltz.state.core.retrying import BACKOFF, is_transient


def test_mark_and_data_change_together(store: Lines) -> None:
    for number in range(3):
        store.apply_transaction(transaction(number))
    store.get_client_high_water_mark(1)
    store.apply_transaction(transaction(0, partition=1))
    assert store.lines() == ["0/0", "0/1", "0/2", "1/0"]
    assert [store.get_client_high_water_mark(p) for p in range(3)] == [2, 0, -1]
    store.create_table()
    assert store.get_client_high_water_mark(0) == 2


def test_applied_transaction_is_not_applied_again(store: Lines) -> None:
    store.apply_transaction(transaction(0))
    store.apply_transaction(transaction(1))
    store.apply_transaction(transaction(0))
    store.apply_transaction(transaction(1))
    assert store.applied == 2
    assert store.lines() == ["0/0", "0/1"]


@pytest.mark.parametrize("partition", [0, 5])
def test_transaction_after_a_gap_raises_mark_mismatch(store: Lines, partition: int) -> None:
    """Also where there is no row at all."""
    with pytest.raises(MarkMismatch, match="the mark in the database is -1") as caught:
        store.apply_transaction(transaction(3, partition=partition))
    assert (caught.value.transaction_id, caught.value.mark) == (3, -1)
    assert store.lines() == []


def test_failed_apply_leaves_no_change(store: Lines) -> None:
    def fail(session: Session) -> None:
        session.flush()
        raise ZeroDivisionError

    store.then = fail
    with pytest.raises(ZeroDivisionError):
        store.apply_transaction(transaction(0))
    store.then = lambda _: None
    assert store.lines() == []
    assert store.get_client_high_water_mark(0) == -1
    store.apply_transaction(transaction(0))
    assert store.lines() == ["0/0"]


def test_constraint_violation_is_raised_without_retry(store: Lines) -> None:
    store.apply_transaction(transaction(0, b"same"))
    with pytest.raises(IntegrityError):
        store.apply_transaction(transaction(1, b"same"))
    assert store.applied == 2
    assert store.get_client_high_water_mark(0) == 0


@pytest.mark.parametrize(
    "end",
    [
        lambda session: session.commit(),
        lambda session: session.rollback(),
        lambda session: session.close(),
        lambda session: session.reset(),
        lambda session: session.invalidate(),
        lambda session: session.prepare(),
        lambda session: session.begin(),
        lambda session: session.connection().commit(),
        lambda session: session.connection().rollback(),
        lambda session: session.get_bind().commit(),
        lambda session: session.get_bind().rollback(),
    ],
)
def test_session_refuses_commit_rollback_and_close(
    store: Lines, end: Callable[[Session], object]
) -> None:
    store.then = end
    with pytest.raises(NotYourTransaction, match="apply must not call"):
        store.apply_transaction(transaction(0))
    store.then = lambda _: None
    assert store.get_client_high_water_mark(0) == -1
    store.apply_transaction(transaction(0))
    assert store.lines() == ["0/0"]


def test_apply_that_catches_the_refusal_commits_nothing(store: Lines) -> None:
    def end(session: Session) -> None:
        with contextlib.suppress(NotYourTransaction):
            session.connection().commit()

    store.then = end
    with pytest.raises((NotYourTransaction, InvalidRequestError)):
        store.apply_transaction(transaction(0))
    assert store.get_client_high_water_mark(0) == -1
    assert store.lines() == []


def test_savepoints_are_allowed(store: Lines) -> None:
    def attempt(session: Session) -> None:
        with contextlib.suppress(IntegrityError), session.begin_nested():
            session.add_all([Line(text="twice"), Line(text="twice")])
            session.flush()
        with session.begin_nested():
            session.execute(insert(Line).values(text="once"))

    store.then = attempt
    store.apply_transaction(transaction(0))
    assert store.lines() == ["0/0", "once"]
    assert store.get_client_high_water_mark(0) == 0


def test_several_processes_share_a_database(store: Lines, database: str) -> None:
    """Each with its own engine; every transaction is applied by one of them."""

    def work() -> int:
        engine = create_engine(database)
        try:
            own = Lines(engine)
            own.get_client_high_water_mark(1)
            for number in range(25):
                own.apply_transaction(transaction(number, partition=1))
            return own.applied
        finally:
            engine.dispose()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: work(), range(3)))
    assert store.get_client_high_water_mark(1) == 24
    assert len(store.lines()) == 25


def test_transient_error_is_retried(store: Lines) -> None:
    failures = iter(range(3))

    def fail(session: Session) -> None:
        if next(failures, None) is not None:
            raise OperationalError("UPDATE", {}, Exception("the server went away"))

    store.then = fail
    store.apply_transaction(transaction(0))
    assert store.applied == 4
    assert store.lines() == ["0/0"]


def test_pauses_between_retries_grow(store: Lines) -> None:
    """A database that restarts is not asked thousands of times."""
    pauses: list[float] = []
    store._sleep = pauses.append
    failures = iter(range(4))

    def fail(session: Session) -> None:
        if next(failures, None) is not None:
            raise OperationalError("UPDATE", {}, Exception("the server went away"))

    store.then = fail
    store.apply_transaction(transaction(0))
    assert pauses == [0.01, 0.02, 0.04, 0.08]


def test_locked_database_is_retried(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("locked") / "state.db"
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
    store = Lines(engine)
    store.create_table()
    Base.metadata.create_all(engine)
    store.get_client_high_water_mark(0)
    with sqlite3.connect(path, isolation_level=None, check_same_thread=False) as other:
        other.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(1) as pool:
            applying = pool.submit(store.apply_transaction, transaction(0))
            with pytest.raises(TimeoutError):
                applying.result(0.05)
            other.execute("COMMIT")
            applying.result(10)
    other.close()
    engine.dispose()
    assert store.lines() == ["0/0"]


def test_transient_errors_are_retried_for_the_retry_time(engine: Engine) -> None:
    class Away(Lines):
        def apply(self, session: Session, transaction: waltz.Transaction[bytes]) -> None:
            self.applied += 1
            raise OperationalError("UPDATE", {}, Exception("the server went away"))

    store = Away(engine)
    store._retry_seconds = 0.05
    store.create_table()
    store.get_client_high_water_mark(0)
    with pytest.raises(OperationalError, match="went away"):
        store.apply_transaction(transaction(0))
    assert store.applied == 3


def test_session_reads_its_own_writes(store: Lines) -> None:
    counts: list[int | None] = []
    store.then = lambda session: counts.append(session.scalar(select(func.count(Line.id))))
    for number in range(3):
        store.apply_transaction(transaction(number))
    assert counts == [1, 2, 3]


def test_transient_errors_are_recognised() -> None:
    cause = Exception("cause")
    assert is_transient(OperationalError("", {}, cause))
    assert is_transient(InterfaceError("", {}, cause))
    assert is_transient(ProgrammingError("", {}, cause, connection_invalidated=True))
    assert not is_transient(ProgrammingError("", {}, cause))
    assert not is_transient(IntegrityError("", {}, cause))
    assert not is_transient(ValueError())


@pytest.mark.parametrize("statement", ["SELECT * FROM nowhere", "SELECT missing FROM lines"])
def test_missing_table_or_column_of_sqlite_is_not_transient(statement: str) -> None:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with engine.connect() as connection, pytest.raises(OperationalError) as caught:
        connection.execute(text(statement))
    assert not is_transient(caught.value)


@pytest.mark.parametrize(("code", "transient"), [(1054, False), (1146, False), (1213, True)])
def test_error_code_of_mysql_decides_whether_an_error_is_transient(
    code: int, transient: bool
) -> None:
    assert is_transient(OperationalError("", {}, Exception(code, "text"))) == transient


@pytest.mark.parametrize("attribute", ["sqlstate", "pgcode"])
@pytest.mark.parametrize(("code", "transient"), [("25P02", False), ("XX000", True), (None, True)])
def test_statement_after_an_error_of_postgresql_is_not_transient(
    attribute: str, code: str | None, transient: bool
) -> None:
    """The names of the attribute are those of psycopg and psycopg2."""
    cause = Exception("current transaction is aborted")
    setattr(cause, attribute, code)
    assert is_transient(InternalError("", {}, cause)) == transient


def test_locked_sqlite_is_transient(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/db", connect_args={"timeout": 0})
    with sqlite3.connect(tmp_path / "db") as other:
        other.execute("CREATE TABLE t (n)")
        other.execute("BEGIN EXCLUSIVE")
        with engine.connect() as connection, pytest.raises(OperationalError) as caught:
            connection.execute(text("INSERT INTO t VALUES (1)"))
    assert is_transient(caught.value)


def test_database_backoff_grows_and_ends_with_the_retry_time() -> None:
    taken = list(BACKOFF.delays(100))
    assert taken[:4] == [0.01, 0.02, 0.04, 0.08]
    assert max(taken) == BACKOFF.longest_seconds
    assert 80 < sum(taken) <= 100
    assert list(BACKOFF.delays(0)) == []


def test_table_name_and_schema_are_used(engine: Engine) -> None:
    class Elsewhere(StateStore[bytes]):
        def apply(self, session: Session, transaction: waltz.Transaction[bytes]) -> None: ...

    store = Elsewhere(engine, table="my_marks")
    store.create_table()
    store.get_client_high_water_mark(4)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT partition_id, high_water_mark FROM my_marks"))
        assert [tuple(row) for row in rows] == [(4, -1)]


def test_mark_that_another_process_inserts_meanwhile_is_read(
    store: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that start together both find no mark; the second insertion fails."""
    store.apply_transaction(transaction(0))
    read = store._marks.read
    missed: list[int] = []

    def read_too_early(connection: Connection, partition: int) -> int | None:
        if missed:
            return read(connection, partition)
        missed.append(partition)
        return None

    monkeypatch.setattr(store._marks, "read", read_too_early)
    assert store.get_client_high_water_mark(0) == 0
    assert missed == [0]
