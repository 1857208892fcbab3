"""The command ``waltz-storage``: it reads the settings and runs one node until a signal comes.

`shell.node` has the node, and `waltz.runtime.service` what all commands of processes share.
"""

from __future__ import annotations

import asyncio

from waltz.runtime.process import report_ports, run_until_done
from waltz.runtime.service import Service, run_service
from waltz_storage.core.errors import DirectoryRefused, DiskFailed, NoSpace
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.environment import learn_cluster
from waltz_storage.shell.node import StorageNode


async def serve(config: StorageConfig, stop: asyncio.Event) -> None:
    """Run a node until ``stop`` is set; raises the errors of `run_node`."""
    await run_node(StorageNode(config), stop)


async def run_node(node: StorageNode, stop: asyncio.Event) -> None:
    """Run ``node`` until ``stop`` is set.

    Raises the errors of `learn_cluster` and of `StorageNode.start`.
    """
    try:
        await run_until_done(_run(node), stop)
    finally:
        await node.stop()


async def _run(node: StorageNode) -> None:
    """Start the node and run it until the task is cancelled.

    After the start, a disk failure ends the process at once (see `shell.environment`).
    """
    cluster = await learn_cluster(node.config)
    await node.start(cluster)
    async with node.http() as http_port:
        report_ports("storage", {**node.ports(), "http": http_port}, node.config.ports_file)
        never = asyncio.Event()
        await never.wait()


SERVICE = Service(
    "waltz-storage",
    "Run a Waltz storage node: it keeps replicas of the log on this machine's disk.",
    "On SIGTERM and SIGINT it finishes all requests, makes everything durable and closes its "
    "files, which Waltz 0.13.2 can then open.",
    StorageConfig,
    serve,
    expected=(DirectoryRefused, DiskFailed, NoSpace),
)


def main() -> None:
    """Entry point of the console script."""
    run_service(SERVICE)
