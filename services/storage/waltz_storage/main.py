"""The command ``waltz-storage``: reads the settings, runs one node until it is told to stop."""

from __future__ import annotations

import asyncio
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
from waltz_storage.config import SCHEMA, StorageConfig, load
from waltz_storage.errors import DirectoryRefused, DiskFailed, NoSpace
from waltz_storage.node import StorageNode, learn_cluster

_EXPECTED = (
    ConfigError,
    DirectoryRefused,
    DiskFailed,
    ListenFailed,
    MalformedMetadata,
    NoCluster,
    NoSpace,
    StoreError,
    TlsConfigError,
)


async def serve(config: StorageConfig) -> None:
    """Run a node until SIGTERM or SIGINT; raises what keeps it from starting."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = StorageNode(config)
    try:
        await run_until_done(_run(node), stop)
    finally:
        await node.stop()


async def _run(node: StorageNode) -> None:
    """Start the node and keep it; ends only by being cancelled, or with what went wrong."""
    await node.start(await learn_cluster(node.config))
    async with node.http() as http_port:
        report_ports("storage", {**node.ports(), "http": http_port}, node.config.ports_file)
        await asyncio.Event().wait()


def _explained_settings() -> str:
    return "\n\n".join(f"{key.name}: {key.meaning}" for key in SCHEMA.keys)


def _command(
    config: Annotated[Path, typer.Argument(help="YAML file with the settings listed below.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run a Waltz storage node: it keeps replicas of the log on this machine's disk."""
    set_up_logging(verbose=verbose)
    try:
        run_loop(serve(load(config)))
    except _EXPECTED as error:
        print(f"waltz-storage: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from None


def main() -> None:
    """Entry point of the console script."""
    app = typer.Typer(add_completion=False)
    app.command(epilog="Settings:\n\n" + _explained_settings())(_command)
    app()
