"""Checksums and hashes of locks are those of the vectors."""

from __future__ import annotations

import json
from pathlib import Path

from waltz.protocol import Lock, checksum


def test_checksum_is_the_crc_32_of_the_data(vectors: Path) -> None:
    for case in json.loads((vectors / "crc.json").read_text())["vectors"]:
        data = bytes.fromhex(case["data_hex"])
        assert checksum(data) == case["crc32_signed_int"], case
        assert f"{checksum(data) & 0xFFFF_FFFF:08x}" == case["crc32_hex"], case


def test_lock_hash_combines_the_hashes_of_name_and_id(vectors: Path) -> None:
    for case in json.loads((vectors / "locks.json").read_text())["lockIds"]:
        assert Lock(case["name"], case["id"]).hash() == case["lockHash"], case
        assert Lock(case["name"], 0).hash() == case["nameHash"], case
        assert Lock("", case["id"]).hash() == case["idHash"], case
