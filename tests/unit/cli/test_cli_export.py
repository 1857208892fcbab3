"""The files of an export: where one ends and the next begins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from waltz.cli.log import export
from waltz.cli.log.archive import Form
from waltz.cli.log.archive_files import find_pieces
from waltz.client import Client, Transaction
from waltz.protocol import ReqId


class Log:
    """A client of a log whose transactions have 60 bytes each, and that arrives in one batch."""

    def stream(self, partition: int, *, after: int, until: int, data: bool) -> Log:
        ids = range(after + 1, until + 1)
        self.batch = [Transaction(partition, n, ReqId(1, 1, 0, n), 0, b"x" * 60) for n in ids]
        return self

    async def batches(self) -> AsyncIterator[list[Transaction[bytes]]]:
        yield self.batch

    async def aclose(self) -> None:
        return


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [(100, [(0, 1), (2, 3), (4, 5), (6, 6)]), (1, [(n, n) for n in range(7)])],
    ids=["bytes", "rows"],
)
async def test_each_file_has_as_much_as_the_bounds_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, pieces: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(export, "_FILE_BYTES", 100)  # The second transaction reaches it.
    how = export._ExportOptions(tmp_path, Form.JSONL, rows, timeout_seconds=5)
    advances: list[int] = []
    await export._export(cast(Client[Any], Log()), 0, -1, 6, how, advances.append)
    assert [(piece.first_id, piece.last_id) for piece in find_pieces(tmp_path)[0]] == pieces
    assert sum(advances) == 7
