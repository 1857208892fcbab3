"""A few seconds of the fuzzer: it finds planted bugs and repeats its earlier findings."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from tests.fuzz.directory_runs import KEY, batch
from tests.fuzz.mutation import mutate
from tests.fuzz.registry import offline_targets
from tests.fuzz.runner import Campaign
from tests.fuzz.target import Target, hold
from waltz.runtime.configuration import ConfigError, read_settings
from waltz.runtime.http import serve_http
from waltz.runtime.metrics import MetricDeclarations, ProcessMetrics
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_format import EntryCorrupted, decode_entry, fresh_entry
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.config import StorageConfig

_ROUNDS = {"directories": 5, "settings": 3}
_OPTIONS = LogOptions(lambda: 1, allocate_bytes=0)
_SEGMENT = f"0/{0:019d}.seg"
_INDEX = f"0/{0:019d}.idx"


@pytest.mark.parametrize("target", offline_targets(), ids=lambda target: target.name)
def test_short_campaign_has_no_findings(target: Target) -> None:
    campaign = Campaign(target, "smoke")
    for _ in range(_ROUNDS.get(target.name, 12)):
        campaign.round()
    assert not campaign.findings, campaign.findings[0].error
    assert 0 < campaign.accepted < campaign.inputs, "inputs must be of both kinds"


class _Planted:
    """Pairs of numbers of which the first counts the second; one mistake in reading them."""

    name = "planted"
    modules = ("tests.fuzz.target",)

    def make(self, random: Random) -> bytes:
        data = random.randbytes(random.randrange(1, 9))
        return struct.pack(">i", len(data)) + data

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        return mutate(random, data, other)

    def check(self, data: bytes) -> bool:
        if len(data) < 4:
            return False
        (length,) = struct.unpack_from(">i", data)
        hold(length != -1, "a length of -1 is taken for what it says")
        return bool(len(data) == 4 + length)


def test_planted_bug_is_found_and_replayed(tmp_path: Path) -> None:
    def found() -> Campaign:
        campaign = Campaign(_Planted(), "7", traced=True)
        for _ in range(40):
            campaign.round()
        return campaign

    first = found()
    (finding,) = first.findings
    assert finding.data[:4] == b"\xff" * 4
    assert found().findings == [finding]
    kept = json.loads(finding.save(tmp_path).read_text())
    assert bytes.fromhex(kept["input"]) == finding.data


def test_settings_that_are_almost_yaml_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "storage.yml"
    deep, large = "[" * 500, "9" * 400
    for value in (
        "!!bool 5",
        "2001-13-45",
        "!!timestamp x",
        "!!int ''",
        deep,
        f"{{a: {deep}",
        large,
    ):
        path.write_text(f"storage.port: {value}\n")
        with pytest.raises(ConfigError, match=r"storage\.yml"):
            read_settings(StorageConfig, path)


def _directory(disk: MemoryDisk) -> StorageDirectory:
    return StorageDirectory(disk, KEY, 1, _OPTIONS)


def _stopped(count: int) -> MemoryDisk:
    """Return the disk of a node that has begun a session with so many records, and stopped."""
    disk = MemoryDisk()
    directory = _directory(disk)
    directory.assign(0)
    opened = directory.partition(0)
    opened.log.append(batch(0, count, 0))
    opened._begin_session(1, count - 1)
    directory.close()
    return disk


def test_damaged_first_record_below_local_mark_is_damage() -> None:
    disk = _stopped(1)
    disk.damage(_SEGMENT, 130, b"rot")
    assert set(_directory(disk).refused) == {0}


def test_truncation_verifies_index_entry() -> None:
    disk = _stopped(20)
    wrong = disk.content(_INDEX)[128 + 8 * 3 : 128 + 8 * 4]
    log = _directory(disk).partition(0).log
    disk.damage(_INDEX, 128 + 8 * 10, wrong)  # A start would rebuild the index.
    with pytest.raises(PartitionDamaged, match=r"\.(seg|idx) at offset"):
        log.truncate(9)
    log.truncate(12)
    assert log.max_id == 12
    assert log.read_batch(0, 9, 1 << 20) == batch(0, 9, 0)


def test_control_entry_with_last_sequence_is_refused() -> None:
    raw = bytearray(fresh_entry(0))
    body = struct.pack(">qqqii", 1, -1, -1, 5, (1 << 31) - 1)
    raw[4:40] = body + struct.pack(">I", crc32(body))
    with pytest.raises(EntryCorrupted, match="highest possible sequence number"):
        decode_entry(bytes(raw))


async def test_each_bad_http_request_logs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    declared: MetricDeclarations[None, None] = MetricDeclarations("g", "g_info", {}, (), (), {})
    metrics = ProcessMetrics(declared, None, lambda: 0.0)
    async with serve_http("test", "127.0.0.1", 0, metrics, lambda: (True, {})) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /ping HTTP/1.1\r\nHost: \x01\r\n\r\n")
        async with asyncio.timeout(60):
            assert b"400 Bad Request" in await reader.read()
        writer.close()
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.exc_info is None
    assert "Error handling request from 127.0.0.1: 400" in line.getMessage()
