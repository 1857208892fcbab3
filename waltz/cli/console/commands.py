"""``waltz console``: serve a web page that shows a cluster. Touches the network and ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import typer

from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.options import examples
from waltz.cli.output import say
from waltz.cli.running import Failed, exit_on_expected_error, run
from waltz.client import Client, connect
from waltz.client.opening import Opening
from waltz.console.core.hosts import allowed_names, is_loopback
from waltz.console.shell.log_reader import LogReader
from waltz.console.shell.poller import ConsoleTarget, Poller, Source
from waltz.metadata.core.paths import Paths
from waltz.net import ListenFailed
from waltz.runtime.extras import check_installed

app = typer.Typer()

DEFAULT_PORT = 8321


@app.command(
    "console",
    cls=ClusterCommand,
    epilog=examples(
        "waltz console",
        "waltz console --port 0 --interval 5",
        "waltz console --host 0.0.0.0 --allow-host console.example",
    ),
)
def console_command(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen on. With an address other than a loopback address, every "
            "host that reaches the port can read the log: the console has no login.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", "-p", min=0, max=65535, help="The port; 0 chooses a free one."),
    ] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which browsers reach the console, besides the address and localhost. "
            "May be repeated.",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two samples.")
    ] = 2.0,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
    ] = 2.0,
) -> None:
    """Serve a web page that shows the cluster and its log, read-only, until Ctrl-C.

    The page works while processes or ZooKeeper do not answer; it shows what they would report as
    unknown. The cluster is sampled only while a browser shows the page.
    """
    with exit_on_expected_error():
        check_installed("waltz console", "console", "aiohttp")
    where = target(context)
    with contextlib.suppress(KeyboardInterrupt):
        run(_serve(where, host, port, allow_host or [], interval, timeout), seconds=None)


async def _serve(
    where: Target, host: str, port: int, names: list[str], interval: float, timeout_seconds: float
) -> None:
    # Not at the top: aiohttp, which it imports, is installed only with the extra `console`.
    from waltz.console.shell.http import serve_console

    # An unusable path or TLS file is an error here, not at every sample.
    Paths(where.root)
    where.tls.dialing_context()
    # To open a client takes several answers of ZooKeeper, so it may take longer than one answer.
    # The added second is for a short timeout.
    connect_seconds = timeout_seconds * 2 + 1

    def open_client() -> Opening[Client[bytes]]:
        return connect(
            where.zookeeper,
            root=where.root,
            tls=where.tls,
            zookeeper_access=where.zookeeper_access,
            connect_timeout=connect_seconds,
        )

    chosen = ConsoleTarget(
        where.zookeeper, where.root, where.tls, where.zookeeper_access, interval, timeout_seconds
    )
    reader = LogReader(open_client)
    poller = Poller(Source(chosen))
    async with contextlib.aclosing(poller), contextlib.aclosing(reader):
        allowed = allowed_names(host, names)
        try:
            async with serve_console(host, port, allowed, poller, reader) as bound:
                shown = f"[{host}]" if ":" in host else host
                say(f"the console of {where.root} is at http://{shown}:{bound}/ (Ctrl-C ends it)")
                if not is_loopback(host):
                    say(
                        f"warning: every host that reaches {shown}:{bound} can read the log, "
                        "because the console has no login"
                    )
                await asyncio.Event().wait()
        except ListenFailed as problem:
            raise Failed(str(problem)) from problem
