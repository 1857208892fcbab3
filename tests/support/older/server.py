"""Runs in place of waltz-server: a server limited to the protocol versions of Waltz 0.13.2."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from waltz.protocol import CLIENT_SERVER, STORAGE
from waltz.runtime.service import run_service
from waltz_server.main import SERVICE, run_node
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.node import ServerNode


async def serve(config: ServerConfig, stop: asyncio.Event) -> None:
    node = ServerNode(config, CLIENT_SERVER.limited_to(0, 1, 2, 3, 4), STORAGE.limited_to(0))
    await run_node(node, stop)


if __name__ == "__main__":
    run_service(replace(SERVICE, serve=serve))
