"""Map each file of spec/vectors to the function that generates it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.vectors.generate import (
    dialogues,
    locks,
    metrics,
    policy,
    recovery,
    storage_dir,
    storage_ops,
    wire,
    znodes,
)

FILES: dict[str, Callable[[], Any]] = {
    "wire.json": wire.wire,
    "wire-negative.json": wire.negative,
    "crc.json": locks.crc,
    "locks.json": locks.locks,
    "zk-serializers.json": znodes.serializers,
    "zookeeper.json": lambda: asyncio.run(znodes.phases()),
    "assignment-policy.json": policy.policy,
    "recovery.json": recovery.recovery,
    "http.json": metrics.http,
    "storage-metrics.json": metrics.storage_metrics,
    "transcripts.json": dialogues.transcripts,
    "storage-dir.json": storage_dir.storage_dir,
    "storage-ops.json": storage_ops.storage_ops,
}
