"""The driver's side of a batch write: when the ledger of the write exists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from waltz import ClusterUnreachable
from waltz.spark import sink
from waltz.spark.core.write_options import WriteOptions
from waltz.spark.sink import WaltzWriter


class Session:
    """Records what happens to the ledger of a write. ``refused`` is the call that fails."""

    def __init__(self, refused: str | None = None) -> None:
        self.calls: list[str] = []
        self._refused = refused

    def check_cluster(self) -> None:
        pass

    def run(self, call: str) -> None:
        if call == self._refused:
            raise ClusterUnreachable("ZooKeeper did not answer")
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


def test_commit_whose_ledger_cannot_be_deleted_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All rows are in the log: a failed write would be repeated, and its rows appended twice."""
    session = Session(refused="deleted")
    monkeypatch.setattr(sink, "SESSION_CACHE", SimpleNamespace(open=lambda _: session))
    writer = WaltzWriter(cast(Any, None), WriteOptions(cast(Any, None), None), cast(Any, None))
    writer.commit([])
    assert "ZooKeeper did not answer" in caplog.text
    assert "delete the znode spark/batch-" in caplog.text
    with pytest.raises(ClusterUnreachable):
        writer.abort([])
