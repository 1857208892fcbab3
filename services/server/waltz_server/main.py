"""The command ``waltz-server``: reads the settings, runs one server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from waltz.config import ConfigError
from waltz.metadata.cluster import NoCluster
from waltz.metadata.codec import MalformedMetadata
from waltz.metadata.store import StoreError
from waltz.net import ListenFailed, TlsConfigError
from waltz.process import report_ports, run_loop, run_until_done, set_up_logging
from waltz_server.config import SCHEMA, ServerConfig, load
from waltz_server.http import start_http
from waltz_server.node import ServerNode

log = logging.getLogger(__name__)

_EXPECTED = (
    ConfigError,
    ListenFailed,
    TlsConfigError,
    NoCluster,
    MalformedMetadata,
    StoreError,
)


async def serve(config: ServerConfig) -> None:
    """Run a server until SIGTERM or SIGINT; raises what stops it otherwise."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = ServerNode(config)
    try:
        await node.start()
        async with start_http(node) as http_port:
            ports = {"port": node.listener.port, "http": http_port}
            report_ports("server", ports, config.ports_file)
            await run_until_done(node.failed(), stop)
    finally:
        await node.stop()


def _explained_settings() -> str:
    return "\n\n".join(f"{key.name}: {key.meaning}" for key in SCHEMA.keys)


def _command(
    config: Annotated[Path, typer.Argument(help="YAML file with the settings listed below.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a Waltz server: it orders, locks and replicates appends, and feeds clients."""
    set_up_logging(verbose=verbose)
    try:
        run_loop(serve(load(config)))
    except _EXPECTED as error:
        print(f"waltz-server: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from None


def main() -> None:
    """Entry point of the console script."""
    app = typer.Typer(add_completion=False)
    app.command(epilog="Settings:\n\n" + _explained_settings())(_command)
    app()
