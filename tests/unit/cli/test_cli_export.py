"""The files of an export: where one ends and the next begins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from waltz.cli.log import export
from waltz.cli.log.archive import BadArchive, Form
from waltz.cli.log.archive_files import find_pieces
from waltz.cli.log.exclusive import exclusive
from waltz.cli.running import Failed
from waltz.client import Client, Transaction
from waltz.protocol import ReqId
from waltz.testing import InProcessCluster


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


async def test_export_into_files_of_another_cluster_fails(tmp_path: Path) -> None:
    """With a longer log, it would continue them with transactions of the other cluster."""
    how = export._ExportOptions(tmp_path, Form.JSONL, 2, timeout_seconds=5)
    for number in range(2):
        async with InProcessCluster() as cluster, cluster.connect() as client:
            for _ in range(3 + number):
                await client.append(0, b"of cluster %d" % number)
            if number == 0:
                await export._export_all(client, (0,), how)
                await export._export_all(client, (0,), how)
                continue
            with pytest.raises(BadArchive, match="differs from transaction 2 in the log"):
                await export._export_all(client, (0,), how)
    assert find_pieces(tmp_path)[0][-1].last_id == 2


async def test_export_while_another_export_runs_fails(tmp_path: Path) -> None:
    how = export._ExportOptions(tmp_path, Form.JSONL, 2, timeout_seconds=5)
    async with InProcessCluster() as cluster, cluster.connect() as client:
        with exclusive(tmp_path), pytest.raises(Failed, match="another export or import"):
            await export._export_all(client, (0,), how)
