"""The command ``waltz-server``: it reads the settings and runs one server until it is stopped.

Touches the process: settings, signals, the file with the ports in use.
"""

from __future__ import annotations

import asyncio

from waltz.runtime.process import report_ports, run_until_done
from waltz.runtime.service import Service, run_service
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.http import start_http
from waltz_server.shell.node import ServerNode


async def serve(config: ServerConfig, stop: asyncio.Event) -> None:
    """Run a server until ``stop`` is set. If the server fails earlier, raise its error."""
    await run_node(ServerNode(config), stop)


async def run_node(node: ServerNode, stop: asyncio.Event) -> None:
    """Run ``node`` until ``stop`` is set. If the node fails earlier, raise its error."""
    try:
        await run_until_done(_run(node), stop)
    finally:
        await node.stop()


async def _run(node: ServerNode) -> None:
    """Start the node and wait until it fails; `run_until_done` cancels this coroutine to stop."""
    await node.listen()
    async with start_http(node) as http_port:
        ports = {"port": node.listener.port, "http": http_port}
        report_ports("server", ports, node.config.ports_file)
        # Join last: a server that cannot use its ports must not take partitions from others, above
        # all not at each of its restarts (test_server_that_cannot_use_its_ports_does_not_join).
        await node.join()
        await node.wait_for_failure()


SERVICE = Service(
    "waltz-server",
    "Run a Waltz server: it orders appends, checks their locks, replicates them and feeds clients.",
    "On SIGTERM or SIGINT it leaves the cluster at once, so that other servers take over, and "
    "finishes its open appends.",
    ServerConfig,
    serve,
)


def main() -> None:
    """Entry point of the console script."""
    run_service(SERVICE)
