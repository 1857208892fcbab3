"""An import that is run again appends what the log lacks, on a cluster in one process."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import cast

import pytest

from waltz.cli.cluster_options import Target
from waltz.cli.log import import_files
from waltz.cli.log.archive import Row
from waltz.cli.log.import_files import _import, default_record_file
from waltz.cli.log.import_record import ImportRecord
from waltz.cli.log.import_sources import Source, find_sources
from waltz.cli.log.rows import ImportCounts
from waltz.cli.running import Failed
from waltz.client import Client, Draft
from waltz.client.core.batches import Appended
from waltz.testing import InProcessCluster

KEY = uuid.UUID(int=1)


async def import_file(file: Path) -> ImportCounts:
    record_file = file.with_suffix(".import")
    record = ImportRecord.read(record_file, KEY)
    sources = find_sources(file, None, to=0)
    where = cast(Target, None)
    done = await _import(where, sources, record, record_file, new_ids=True, dry_run=False)
    return done[0]


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster() as cluster:

        @asynccontextmanager
        async def open_client(where: Target) -> AsyncIterator[Client]:
            async with cluster.connect() as client:
                yield client

        monkeypatch.setattr(import_files, "open_client", open_client)
        yield cluster


async def test_repeated_import_appends_only_what_the_log_lacks(
    tmp_path: Path, cluster: InProcessCluster
) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [f'{{"data": "row {number}"}}\n' for number in range(5)]
    file.write_text("".join(rows[:3]))
    assert await import_file(file) == ImportCounts(before=0, now=3)
    async with cluster.connect() as client:
        await client.append(0, b"of another program")
    assert await import_file(file) == ImportCounts(before=3, now=0)
    file.write_text("".join(rows))
    assert await import_file(file) == ImportCounts(before=3, now=2)
    found = [each.data.decode() for each in cluster.transactions(0)]
    assert found == ["row 0", "row 1", "row 2", "of another program", "row 3", "row 4"]
    # With fewer rows than before, these cannot be the files of that import.
    file.write_text("".join(rows[:4]))
    with pytest.raises(Failed, match="the record of an import of other files"):
        await import_file(file)
    assert len(cluster.transactions(0)) == 6


@pytest.mark.parametrize("changed", ['{"data": "other"}\n', '{"data": "row 1", "header": 7}\n'])
async def test_repeated_import_of_other_rows_fails(
    tmp_path: Path, cluster: InProcessCluster, changed: str
) -> None:
    """As many rows as the first run appended would be left out, though the log lacks them."""
    file = tmp_path / "rows.jsonl"
    rows = [f'{{"data": "row {number}"}}\n' for number in range(5)]
    file.write_text("".join(rows[:3]))
    await import_file(file)
    file.write_text("".join([rows[0], changed, *rows[2:]]))
    with pytest.raises(Failed, match=r"transaction 1 of partition 0, .* differs from row 2"):
        await import_file(file)
    assert len(cluster.transactions(0)) == 3


class CountingLog:
    """An empty log, in place of `Client`; ``open_rows`` counts the sources that are being read."""

    def __init__(self) -> None:
        self.client_id = 5
        self.open_rows = self.most_open_rows = 0
        self.appended: Counter[int] = Counter()

    @property
    def bulk(self) -> CountingLog:
        return self

    def rows(self) -> Iterator[Row]:
        self.open_rows += 1
        self.most_open_rows = max(self.most_open_rows, self.open_rows)
        try:
            # Each row is a batch of its own, so the second one is read after the first append.
            yield from repeat(Row(0, None, 0, bytes(1 << 20)), 2)
        finally:
            self.open_rows -= 1

    async def high_water_mark(self, _partition: int) -> int:
        return -1

    async def append(
        self, partition: int, drafts: Sequence[Draft[bytes]], *, mark: int
    ) -> list[Appended]:
        await asyncio.sleep(0)  # Lets the other partitions append.
        self.appended[partition] += len(drafts)
        return [Appended(mark + number) for number in range(1, len(drafts) + 1)]


async def test_import_into_many_partitions_reads_few_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a file for each partition, a process would have too many open files."""
    log = CountingLog()

    @asynccontextmanager
    async def open_client(where: Target) -> AsyncIterator[CountingLog]:
        yield log

    monkeypatch.setattr(import_files, "open_client", open_client)
    sources = [Source(number, 2, log.rows, None) for number in range(200)]
    record, record_file = ImportRecord.read(tmp_path / "record", KEY), tmp_path / "record"
    where = cast(Target, None)
    await _import(where, sources, record, record_file, new_ids=False, dry_run=False)
    assert log.appended == dict.fromkeys(range(200), 2)
    assert 1 < log.most_open_rows <= 64


def test_record_of_import_is_found_by_every_path_of_its_directory(tmp_path: Path) -> None:
    """Without the record, a repeated import would append every transaction again."""
    export = tmp_path / "export"
    (export / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(export)
    expected = tmp_path.resolve() / f"export.import-{KEY}.json"
    for path in (export, export / "sub" / "..", tmp_path / "link"):
        assert default_record_file(path, KEY) == expected


def test_record_of_import_from_the_working_directory_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{tmp_path.resolve().name}.import-{KEY}.json"
    assert default_record_file(Path("."), KEY) == tmp_path.resolve().with_name(name)
