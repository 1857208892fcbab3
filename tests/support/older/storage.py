"""Runs in place of waltz-storage: a storage limited to the protocol versions of Waltz 0.13.2."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from waltz.protocol import ADMIN, STORAGE
from waltz.runtime.service import run_service
from waltz_storage.main import SERVICE, run_node
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.node import StorageNode


async def serve(config: StorageConfig, stop: asyncio.Event) -> None:
    node = StorageNode(config, STORAGE.limited_to(0), ADMIN.limited_to(0))
    await run_node(node, stop)


if __name__ == "__main__":
    run_service(replace(SERVICE, serve=serve))
