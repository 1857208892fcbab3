"""What wrong command lines meet: files that cannot be used, a cluster in memory, no processes.

`answer_problem` judges the answer to a wrong command line.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.local.core.plan import ClusterLayout, LocalClusterPlan, Shape, cluster_description
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.cluster_backup import ClusterBackup, encode_backup
from waltz.metadata.core.formats import (
    OwnedPartition,
    PartitionAssignment,
    ServerDescriptor,
)
from waltz.metadata.core.storage_maps import add_storage_node, assign_everything
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import create_cluster
from waltz.protocol import Record, RecordBatch, ReqId, checksum
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

ROOT_COMMAND: Any = typer.main.get_command(app)
CLUSTER_ROOT, KEY, PARTITIONS = "/waltz/orders", uuid.UUID(int=7), 4
STORAGES, SPARE = ("127.0.0.1:1", "127.0.0.1:3", "127.0.0.1:5"), "127.0.0.1:8"
"""Addresses on ports where nothing listens: each connection is refused at once."""
_MOST_CHARACTERS = 1000


def answer_problem(typed: Sequence[str], says: str) -> str | None:
    """Run a wrong command line; return what is wrong with its answer, None if it is good.

    A good answer is one line on standard error with ``says``, and a status that is not 0.
    """
    result = CliRunner().invoke(app, list(typed), prog_name="waltz", input="")
    shown = f"waltz {shlex.join(typed)}\n    {result.output}"
    if result.exit_code == 0:
        return f"{shown} succeeded"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{shown} {result.exception!r}"
    lines = result.stderr.splitlines()
    if result.stdout or len(lines) != 1 or not lines[0].startswith("waltz: "):
        return f"{shown} is not one line on standard error"
    if len(lines[0]) > _MOST_CHARACTERS or "Errno" in lines[0]:
        return f"{shown} is not for people"
    return None if says in lines[0] else f"{shown} does not say {says!r}"


def forget_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the user have no profiles and no variables, and work in ``folder``."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "home"))
    for name in ("ZOOKEEPER", "ROOT", "TLS", "CLUSTER", "PROFILE", "ACCESS"):
        monkeypatch.delenv(f"WALTZ_{name}", raising=False)
    # The runner would make all commands anew for each command line, which takes most of the time.
    monkeypatch.setattr("typer.testing._get_command", lambda _: ROOT_COMMAND)


def write_files(folder: Path) -> None:
    """Write the files that wrong command lines name: settings, logs, archives, storages."""
    (folder / "dir").mkdir()
    for name, content in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    layout = ClusterLayout(folder / "dead")
    plan = LocalClusterPlan.of(Shape(), iter(range(20_000, 20_020)))
    for described in (layout, ClusterLayout(folder / "planned")):
        described.directory.mkdir()
        described.plan.write_text(plan.to_json())
    layout.description.write_text(json.dumps(cluster_description(plan, layout, {}, None)))
    other = ClusterBackup("orders", CLUSTER_ROOT, uuid.UUID(int=9), 4, 0, 0, _maps(), {}, {})
    (folder / "otherkey.json").write_text(encode_backup(other))
    _write_storage(folder / "storage")
    _write_storage(folder / "damaged", flip=True)


def _write_storage(path: Path, *, flip: bool = False) -> None:
    """Write the directory of a stopped storage; with ``flip``, one of its records is damaged."""
    path.mkdir()
    options = LogOptions(lambda: 1_700_000_000_000, segment_threshold=10_000, allocate_bytes=0)
    directory = StorageDirectory(PosixDisk(path), KEY, PARTITIONS, options)
    directory.assign(1)
    records = [Record(n, ReqId(1, 1, 1, n), 0, b"%d" % n, checksum(b"%d" % n)) for n in range(5)]
    directory.partition(1).log.append(RecordBatch.of(records))
    directory.close()
    if flip:
        segment = path / "1" / f"{0:019d}.seg"
        content = bytearray(segment.read_bytes())
        content[140] ^= 1
        segment.write_bytes(content)


def use_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every verb find a cluster in memory whose processes are all dead.

    Beside it are a root without data, ``/waltz/half``, and one of another program, ``/waltz/junk``.
    """
    memory = MemoryZooKeeper()

    async def connect(*_: object, **__: object) -> Any:
        return memory.connect()

    async def create() -> None:
        store = memory.connect()
        await create_cluster(store, CLUSTER_ROOT, "orders", PARTITIONS, key=KEY, storages=_maps())
        cluster = Cluster(store, CLUSTER_ROOT)
        server = ServerDescriptor(1, "127.0.0.1", 10)
        await store.create(cluster.paths.new_server_descriptor, server.encode(), sequence=True)
        assignment = await cluster.partition_assignment()
        owned = tuple(OwnedPartition(partition, 1) for partition in range(PARTITIONS))
        await cluster.write_partition_assignment(
            PartitionAssignment(1, PARTITIONS, {1: owned}), assignment.version
        )
        await store.create("/waltz/half", None)
        await store.create("/waltz/junk", b"not of this program")

    asyncio.run(create())
    monkeypatch.setattr(KazooStore, "connect", connect)


def _maps() -> Any:
    """Return the maps of three storages in three groups, and of one without partitions."""
    groups = {storage: group for group, storage in enumerate(STORAGES)}
    maps = assign_everything(groups, dict.fromkeys(STORAGES, 2), PARTITIONS)
    return add_storage_node(maps, SPARE, 2, 9)


_ROW = '{"partition": 0, "id": 0, "header": 0, "data": "x"}\n'
_ZEROS = "0" * 18
_FILES: dict[str, str | bytes] = {
    "a-file": "text\n",
    "exists.tar.gz": "",
    "junk.bin": b"\x00\xff\xfe\x80" * 40,
    "utf16.yml": "server.port: 1".encode("utf-16"),
    "list.yml": "- a\n- b\n",
    "open.yml": "server: {port: 1\n",
    "twice.yml": "server.port: 1\nserver.port: 2\n",
    "tabs.yml": "server:\n\tport: 1\n",
    "deep.yml": "a: " + "[" * 3000,
    "dates.yml": "server.port: 2026-13-45\n",
    "nul.yml": "server.port: 1\0\n",
    "loop.yml": "a: &a {b: *a}\n",
    "typo.yml": "zookeeper.conectString: zk:1\n",
    "nopem.yml": "certificate: missing.pem\nkey: missing.pem\n",
    "nocert.yml": "key: a-file\n",
    "c.pem": "not a certificate\n",
    "empty.json": "",
    "notcluster.json": '{"zookeeper": 1}',
    "dead.json": '{"zookeeper": "127.0.0.1:1", "root": "/waltz", "tls": false}',
    "nulzk.json": '{"zookeeper": "zk\\u0000:1", "root": "/waltz", "tls": false}',
    "badplan/plan.json": "?",
    "oldplan/plan.json": '{"format": 99}',
    "emptyplan/plan.json": "",
    "binplan/plan.json": b"\xff\xfe",
    "wrong.seg": "",
    "badcluster/cluster.json": "{",
    "listcluster/cluster.json": "[]",
    "short.bin": b"\x00\x00\x00\x05abc",
    "huge.bin": b"\x7f\xff\xff\xffabc",
    "junk.jsonl": "hello\n",
    "badline.jsonl": _ROW + '{"data": 5}\n',
    "badheader.jsonl": '{"header": 4294967296, "data": "x"}\n',
    "good.jsonl": '{"data": "x"}\n',
    "latin.jsonl": b'{"data": "\xe9"}\n',
    "junk.parquet": "not parquet",
    "badrecord.json": "{",
    "otherrecord.json": json.dumps({"key": str(uuid.UUID(int=1)), "partitions": {}}),
    f"gap/partition-0/{_ZEROS}0-{_ZEROS}0.jsonl": _ROW,
    f"gap/partition-0/{_ZEROS}5-{_ZEROS}5.jsonl": _ROW,
    f"count/partition-0/{_ZEROS}0-{_ZEROS}3.jsonl": _ROW,
    f"emptyseg/1/{_ZEROS}0.seg": "",
    f"junkseg/1/{_ZEROS}0.seg": b"\x55" * 400,
    "emptycontrol/waltz-storage.ctl": "",
    "badcontrol/waltz-storage.ctl": b"\x55" * 300,
    "emptywal/waltz-storage.wal": "",
    "junkwal/waltz-storage.wal": b"\x55" * 9000,
}
"""The content of each file by its path."""
