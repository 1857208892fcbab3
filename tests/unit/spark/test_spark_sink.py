"""The driver's side of a batch write: when the ledger of the write exists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from waltz.spark import sink
from waltz.spark.core.write_options import WriteOptions
from waltz.spark.sink import WaltzWriter


class Session:
    """Records what happens to the ledger of a write."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def check_cluster(self) -> None:
        pass

    def run(self, call: str) -> None:
        self.calls.append(call)

    def ledger(self, write_id: str, *, persistent: bool) -> Any:
        return SimpleNamespace(create=lambda: "created", delete=lambda: "deleted")


@pytest.mark.parametrize("ends", ["commit", "abort"])
@pytest.mark.parametrize(
    ("write_id", "after"), [(None, ["created", "deleted"]), ("mine", ["created"])]
)
def test_ledger_of_a_write_without_an_id_is_deleted_when_the_write_ends(
    monkeypatch: pytest.MonkeyPatch, ends: str, write_id: str | None, after: list[str]
) -> None:
    """Tasks that Spark has abandoned would otherwise append after the write has failed."""
    session = Session()
    monkeypatch.setattr(sink, "SESSION_CACHE", SimpleNamespace(open=lambda _: session))
    options = WriteOptions(cast(Any, None), write_id)
    writer = WaltzWriter(cast(Any, None), options, cast(Any, None))
    getattr(writer, ends)([])
    assert session.calls == after
