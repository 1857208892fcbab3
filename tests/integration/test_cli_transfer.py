"""Test export and import of a log on a running cluster, with interruptions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import waltz
from tests.support.eventually import eventually
from waltz.cli.app import app
from waltz.local import LocalCluster

ROWS = 6000


def command(cluster: LocalCluster, *arguments: str) -> list[str]:
    return ["log", *arguments, "--cluster", str(cluster.layout.description)]


def invoke(cluster: LocalCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, command(cluster, *arguments))


def value(cluster: LocalCluster, *arguments: str) -> Any:
    result = invoke(cluster, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    described = json.loads(cluster.layout.description.read_text())
    async with waltz.connect(
        described["zookeeper"], root=described["root"], tls=waltz.PLAINTEXT
    ) as opened:
        yield opened


async def contents(client: waltz.Client, partition: int, after: int) -> list[tuple[int, bytes]]:
    mark = await client.high_water_mark(partition)
    stream = client.stream(partition, after=after, until=mark, data=True)
    return [(each.header, each.data) async for each in stream] if mark > after else []


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_export_and_import_keep_transactions(
    cluster: LocalCluster, client: waltz.Client, tmp_path: Path, form: str
) -> None:
    archive = tmp_path / "archive"
    for number in range(5):
        await client.append(0, b"\xff%d" % number, header=number)
    export = ["export", str(archive), "0", "--format", form, "--rows-per-file", "7"]
    first = await asyncio.to_thread(value, cluster, *export)
    assert first[0]["last_id"] == await client.high_water_mark(0)
    again = await asyncio.to_thread(value, cluster, *export)
    assert again[0]["exported"] == 0
    last = await client.append(0, b"later")
    more = await asyncio.to_thread(value, cluster, *export)
    assert (more[0]["first_id"], more[0]["last_id"]) == (last, last)

    before = await client.high_water_mark(2)
    load = ["import", str(archive), "--to", "2"]
    (planned,) = await asyncio.to_thread(value, cluster, *load, "--dry-run")
    assert (planned["before"], planned["imported"]) == (0, last + 1)
    assert await client.high_water_mark(2) == before
    (done,) = await asyncio.to_thread(value, cluster, *load)
    assert done["imported"] == last + 1
    assert await contents(client, 2, before) == await contents(client, 0, -1)
    (nothing,) = await asyncio.to_thread(value, cluster, *load)
    assert (nothing["before"], nothing["imported"]) == (last + 1, 0)


@pytest.mark.slow
async def test_killed_import_continues_when_it_is_run_again(
    cluster: LocalCluster, client: waltz.Client, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"data": f"row {n}"}) + "\n" for n in range(ROWS)))
    before = await client.append(1, b"begin")
    marks = [-1]

    async def follow() -> None:
        async for batch in client.stream(1, after=before - 1).batches():
            marks.append(batch[-1].id)

    following = asyncio.create_task(follow())
    await eventually(lambda: marks[-1] == before)
    load = command(cluster, "import", str(file), "--to", "1")
    program = sys.executable, "-m", "waltz.cli"
    process = await asyncio.create_subprocess_exec(*program, *load)
    try:
        await eventually(lambda: marks[-1] >= before + 20, seconds=60)
    finally:
        process.kill()
        await process.wait()
        following.cancel()
    await client.append(1, b"another else's")
    done = await asyncio.to_thread(invoke, cluster, *load[1:-2])
    assert done.exit_code == 0, done.output
    assert done.stdout.split()[-2] != "0"
    found = [data for _, data in await contents(client, 1, before)]
    found.remove(b"another else's")
    assert found == [b"row %d" % n for n in range(ROWS)]


def test_impossible_transfer_fails_with_one_sentence(cluster: LocalCluster, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text('{"data": "a"}\n{"data": "b", "partition": 1}\n')
    ahead = tmp_path / "ahead"
    (ahead / "partition-0").mkdir(parents=True)
    (ahead / "partition-0" / f"{0:019d}-{10**12:019d}.jsonl").touch()
    for arguments, why in (
        (["import", str(tmp_path / "nothing")], "there is no file or directory"),
        (["import", str(tmp_path)], "has no transactions"),
        (["import", str(mixed)], "rows without a partition"),
        (["export", str(ahead), "0"], "the files are of another cluster"),
        (["export", str(mixed), "0"], "jsonl cannot be written: Not a directory"),
    ):
        result = invoke(cluster, *arguments)
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert why in line
