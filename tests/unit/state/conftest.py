"""Provide the databases of the tests, SQLite and PostgreSQL if it is installed, and a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from tests.support.postgres import emptied, running_postgres
from tests.support.state_lines import Base, Lines


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL."""
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    yield from emptied(request.getfixturevalue("postgres"))


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine: Engine) -> Lines:
    store = Lines(engine)
    store.create_table()
    Base.metadata.create_all(engine)
    assert store.get_client_high_water_mark(0) == -1
    return store
